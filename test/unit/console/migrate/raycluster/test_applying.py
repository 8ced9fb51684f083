"""The executor: conflicts are planned again, errors stay with their object, pods that stay stop further restarts."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from cfo.console.migrate.raycluster import applying
from cfo.console.migrate.raycluster.applying import Executor, Outcome
from cfo.console.migrate.raycluster.planning import ObservedCluster, plan_cluster
from cfo.console.migrate.raycluster.steps import ObjectPlan
from cfo.runtime.client.errors import Conflict, Forbidden
from cfo.runtime.objects.unstructured import Object, name_of
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

    async def update(self, obj: Object, *, dry_run: bool) -> Object:
        if self.errors:
            raise self.errors.pop(0)
        if obj["kind"] == "RayCluster":
            self.state = ObservedCluster(
                obj, self.state.children, self.state.bindings, has_pods=self.pods
            )
        return obj

    async def delete(self, gvk: Any, key: Any, **_: Any) -> bool:
        self.deleted.append(key.name)
        kept = [obj for obj in self.state.children if name_of(obj) != key.name]
        bindings = [obj for obj in self.state.bindings if name_of(obj) != key.name]
        self.state = ObservedCluster(self.state.cluster, kept, bindings, has_pods=self.pods)
        return True

    async def has_pods(self, _: Object) -> bool:
        return self.pods

    async def bindings_of(self, _: Object) -> list[Object]:
        return list(self.state.bindings)

    async def plan(self) -> ObjectPlan:
        return plan_cluster(self.state, TO_KUBERAY)


def executor(server: Server) -> Executor:
    fake = cast("Any", server)
    return Executor(fake, fake, lambda _: None, lambda _: None, timeout=0.01)


async def migrate(server: Server) -> Outcome:
    return await executor(server).migrate(await server.plan(), server.plan)


def new_server(*errors: Exception, has_pods: bool = False) -> Server:
    return Server(observed(injected(user_cluster("rc"), go=True)), *errors, has_pods=has_pods)


async def test_conflict_is_planned_again() -> None:
    server = new_server(Conflict(409), Conflict(409))
    outcome = await migrate(server)
    assert outcome.error == ""
    assert "finalizers" not in server.state.cluster["metadata"]


async def test_endless_conflict_leaves_steps_for_another_run() -> None:
    outcome = await migrate(new_server(*(Conflict(409) for _ in range(100))))
    assert (outcome.error, outcome.is_incomplete) == ("", True)


async def test_error_stays_with_its_object() -> None:
    outcome = await migrate(new_server(Forbidden(403, {"message": "not allowed"})))
    assert "not allowed" in outcome.error


async def test_finalizer_stays_while_a_binding_exists() -> None:
    server = new_server()

    async def keep(*_: Any, **__: Any) -> bool:
        return True

    server.delete = keep  # type: ignore[method-assign]
    outcome = await migrate(server)
    assert "still exists, so the finalizer is kept" in outcome.error
    assert "finalizers" in server.state.cluster["metadata"]


async def test_pods_that_are_not_deleted_stop_further_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.001)
    server = new_server(has_pods=True)
    shared = executor(server)
    first = await shared.migrate(await server.plan(), server.plan)
    assert "its pods still exist after 0.01 s" in first.error
    other = plan_cluster(observed(injected(user_cluster("other"))), TO_KUBERAY)
    second = await shared.migrate(other, server.plan)
    assert (second.done, second.error) == (
        [],
        "was not suspended, because the pods of another RayCluster were not deleted",
    )
