"""The executor: conflicts are planned again, errors are raised, pods that stay fail one RayCluster."""

from __future__ import annotations

import copy
from typing import Any, cast

import anyio
import pytest

from cfo.console.migrate.raycluster import applying
from cfo.console.migrate.raycluster.applying import Executor, StepFailed
from cfo.console.migrate.raycluster.planning import ObservedCluster
from cfo.console.migrate.raycluster.steps import ObjectPlan
from cfo.console.migrate.raycluster.stop_limit import StopLimit
from cfo.runtime.client.errors import Conflict, Forbidden
from cfo.runtime.objects.unstructured import NamespacedName, Object, name_of
from test.support.migration import TO_KUBERAY, injected, observed, user_cluster


class Server:
    """Stores one RayCluster; the other objects are only deleted. ``errors`` are raised by the next updates."""

    def __init__(self, state: ObservedCluster, *errors: Exception, has_pods: bool = False) -> None:
        self.state = state
        self.errors = list(errors)
        self.deleted: list[str] = []
        self.pods = has_pods

    async def get(self, gvk: Any, key: Any, *, live: bool) -> Object:
        found = [self.state.cluster, *self.state.children]
        return copy.deepcopy(
            next(obj for obj in found if obj["kind"] == gvk.kind and name_of(obj) == key.name)
        )

    async def update(self, obj: Object, *, subresource: str = "") -> Object:
        assert subresource == "", "no RayCluster has conditions"
        if self.errors:
            raise self.errors.pop(0)
        cluster, children = self.state.cluster, list(self.state.children)
        if obj["kind"] == "RayCluster":
            cluster = obj
        else:
            children = [obj if name_of(each) == name_of(obj) else each for each in children]
        self.state = ObservedCluster(cluster, children, self.state.bindings, has_pods=self.pods)
        return obj

    async def delete(self, gvk: Any, key: Any, **_: Any) -> bool:
        self.deleted.append(key.name)
        kept = [obj for obj in self.state.children if name_of(obj) != key.name]
        bindings = [obj for obj in self.state.bindings if name_of(obj) != key.name]
        self.state = ObservedCluster(self.state.cluster, kept, bindings, has_pods=self.pods)
        return True

    async def pods_of(self, _: Object) -> dict[str, bool]:
        return {"rc-head": False} if self.pods else {}

    async def bindings_of(self, _: Object) -> list[Object]:
        return list(self.state.bindings)

    async def cluster(self, _: Any) -> ObservedCluster:
        return self.state


async def migrate(server: Server, *, timeout: float = 0.01) -> ObjectPlan:
    fake = cast("Any", server)
    executor = Executor(fake, fake, TO_KUBERAY, lambda _: None, timeout=timeout)
    plan = await executor.migrate(NamespacedName("team-a", "rc"))
    assert plan is not None
    return plan


def new_server(*errors: Exception, has_pods: bool = False) -> Server:
    return Server(observed(injected(user_cluster("rc"), go=True)), *errors, has_pods=has_pods)


async def test_conflict_is_planned_again() -> None:
    server = new_server(Conflict(409), Conflict(409))
    plan = await migrate(server)
    assert plan.steps == []
    assert "finalizers" not in server.state.cluster["metadata"]


async def test_endless_conflict_leaves_steps_for_another_run() -> None:
    plan = await migrate(new_server(*(Conflict(409) for _ in range(100))))
    assert plan.is_incomplete


async def test_error_of_the_api_server_is_raised() -> None:
    with pytest.raises(Forbidden, match="not allowed"):
        await migrate(new_server(Forbidden(403, {"message": "not allowed"})))


async def test_object_that_was_recreated_is_not_changed() -> None:
    server = new_server()
    before = server.get

    async def recreated(*arguments: Any, **options: Any) -> Object:
        found = await before(*arguments, **options)
        found["metadata"]["uid"] = "another"
        return found

    server.get = recreated  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="RayCluster rc was deleted"):
        await migrate(server)
    assert "suspend" not in server.state.cluster["spec"]


async def test_finalizer_stays_while_a_binding_exists() -> None:
    server = new_server()

    async def keep(*_: Any, **__: Any) -> bool:
        return True

    server.delete = keep  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="still exists, so the finalizer is kept"):
        await migrate(server)
    assert "finalizers" in server.state.cluster["metadata"]


async def test_pods_that_are_not_deleted_fail_their_raycluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.001)
    server = new_server(has_pods=True)
    with pytest.raises(StepFailed) as caught:
        await migrate(server)
    assert str(caught.value) == (
        "pod rc-head still exists after 0.01 s, so it stays suspended and is not changed; check KubeRay, and the pod's "
        "finalizers and node (kubectl -n team-a get pod rc-head -o yaml), and run the command again"
    )
    assert server.deleted == []
    assert server.state.cluster["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("later", "is_deleted"),
    [({"rc-head": False}, False), ({"rc-head": True}, True), ({"another": False}, True)],
)
async def test_pods_count_as_deleted_when_their_deletion_has_begun(
    later: dict[str, bool], monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.0)
    recorded: list[bool] = []

    def record(_: StopLimit, cluster: Object, *, are_pods_deleted: bool) -> None:
        recorded.append(are_pods_deleted)

    monkeypatch.setattr(StopLimit, "record_failure", record)
    server = new_server(has_pods=True)
    found = [later, {"rc-head": False}]

    async def pods_of(_: Object) -> dict[str, bool]:
        if not found:
            await anyio.sleep_forever()
        return found.pop()

    server.pods_of = pods_of  # type: ignore[method-assign]
    with pytest.raises(StepFailed):
        await migrate(server, timeout=0.3)
    assert recorded == [is_deleted]
