"""``cfo uninstall``; test/integration/test_install.py has the whole command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest

from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.console.uninstall import installation_check, steps
from cfo.console.uninstall.kept import kept_crds
from cfo.console.uninstall.removal import Removal, UninstallIncomplete
from cfo.console.uninstall.stored_objects import MAX_NAMED, deleted_namespaces
from cfo.manifests.overlays import crds
from cfo.runtime import GVK, Client, Conflict, Forbidden, NamespacedName, Object, name_of
from cfo.runtime.objects import LEASE
from cfo.runtime.process import UnreadableObject

FINALIZER = "ray.openshift.ai/oauth-finalizer"


class ContestedClient:
    """A client whose object another client changes before each write."""

    def __init__(self) -> None:
        self.writes = 0

    async def get_metadata(self, *_: Any) -> Object:
        return {
            "apiVersion": RAY_CLUSTER.api_version,
            "kind": RAY_CLUSTER.kind,
            "metadata": {"name": "rc", "namespace": "ns", "uid": "1", "finalizers": [FINALIZER]},
        }

    async def patch(self, *_: Any, **__: Any) -> Object:
        self.writes += 1
        raise Conflict(409)


async def test_removal_of_a_contested_finalizer_ends() -> None:
    client = ContestedClient()
    reports: list[str] = []
    removal = Removal(cast("Client", client), reports.append, dry_run=False)
    await removal.remove_finalizer(RAY_CLUSTER, NamespacedName("ns", "rc"), FINALIZER)
    assert client.writes == 20
    assert reports == [
        f"not removed: finalizer {FINALIZER} of RayCluster ns/rc: changed by other clients 20 times"
    ]


class NestedClient(ContestedClient):
    """A client of a cluster with an object that is nested too deeply to be decoded, as users can create it."""

    async def get(self, *_: Any, **__: Any) -> Object:
        raise UnreadableObject("too many levels")

    async def patch(self, *_: Any, **__: Any) -> Object:
        self.writes += 1
        raise UnreadableObject("too many levels")  # the response has the object as it was stored


async def test_object_that_is_nested_too_deeply_stops_nothing() -> None:
    client = NestedClient()
    reports: list[str] = []
    removal = Removal(cast("Client", client), reports.append, dry_run=False)
    key = NamespacedName("ns", "rc")
    await removal.remove_finalizer(RAY_CLUSTER, key, FINALIZER)
    await removal.remove_conditions(RAY_CLUSTER, [key], ["Ready"])
    assert client.writes == 1
    assert reports == [
        f"removed finalizer {FINALIZER} from RayCluster ns/rc",
        "not removed: the operator's conditions of RayCluster ns/rc: too many levels",
    ]


class ConditionsClient:
    """A client of a cluster with a RayCluster whose status this operator, or only KubeRay, has written."""

    def __init__(self, manager: str) -> None:
        self.manager = manager
        self.patches: list[Any] = []
        self.conditions = [
            {"type": "HeadPodReady", "status": "True"},
            {"type": "ray.openshift.ai/Exposed", "status": "True"},
        ]

    async def select(
        self, gvk: GVK, select: Callable[[Object], Any], *, metadata_only: bool
    ) -> list[Any]:
        assert metadata_only
        assert gvk == RAY_CLUSTER
        entries = [{"manager": self.manager, "subresource": "status"}, {"manager": FIELD_MANAGER}]
        metadata = {"name": "rc", "namespace": "ns", "managedFields": entries}
        found = select({"metadata": metadata})
        return [] if found is None else [found]

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object:
        metadata = {"name": key.name, "namespace": key.namespace, "uid": "u"}
        status = {"conditions": self.conditions}
        return {
            "apiVersion": gvk.api_version,
            "kind": gvk.kind,
            "metadata": metadata,
            "status": status,
        }

    async def patch_object(self, obj: Object, patch: Object, **options: Any) -> Object:
        assert options == {"unchanged": True, "subresource": "status"}
        self.patches.append(patch)
        self.conditions = patch["status"]["conditions"]
        return obj


@pytest.mark.parametrize("manager", [FIELD_MANAGER, "kuberay-operator"])
async def test_conditions_that_nothing_corrects_any_more_are_removed(manager: str) -> None:
    client = ConditionsClient(manager)
    for dry_run in (True, False, False):
        reports: list[str] = []
        removal = Removal(cast("Client", client), reports.append, dry_run=dry_run)
        has_own = manager == FIELD_MANAGER and len(client.conditions) == 2
        await steps._remove_conditions(removal, cast("Client", client))
        verb = "would remove" if dry_run else "removed"
        expected = [f"{verb} the operator's conditions from 1 RayCluster (ns/rc)"]
        assert reports == (expected if has_own else [])
    kept = {"status": {"conditions": [{"type": "HeadPodReady", "status": "True"}]}}
    assert client.patches == ([kept] if manager == FIELD_MANAGER else [])


class MetadataClient:
    """A client of a cluster with large RayClusters, of which only metadata may be listed."""

    async def select(
        self, gvk: GVK, select: Callable[[Object], Any], *, metadata_only: bool, **_: str
    ) -> list[Any]:
        assert metadata_only
        if gvk != RAY_CLUSTER:
            return []
        owned = {"name": "rc", "namespace": "ns", "finalizers": ["other", FINALIZER]}
        found = [
            select({"metadata": owned}),
            select({"metadata": {"name": "free", "namespace": "ns"}}),
        ]
        return [each for each in found if each is not None]

    async def get(self, gvk: GVK, key: NamespacedName, **_: Any) -> Object | None:
        if key.name != "rc":
            return None
        metadata: Object = {"name": key.name, "namespace": key.namespace, "uid": "u"}
        metadata |= {"finalizers": ["other"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}


async def test_only_metadata_is_listed_to_remove_finalizers() -> None:
    client = cast("Client", MetadataClient())
    removed: list[NamespacedName] = []
    removal = mock.Mock()
    removal.remove_finalizer = mock.AsyncMock(side_effect=lambda _, key, __: removed.append(key))
    await steps._remove_finalizers(removal, client)
    assert removed == [NamespacedName("ns", "rc")]


async def test_only_metadata_is_listed_while_objects_are_deleted() -> None:
    reports: list[str] = []
    removal = Removal(cast("Client", MetadataClient()), reports.append, dry_run=False)
    await removal.wait_for_deletion(RAY_CLUSTER, 0)
    pending = "is being deleted, waiting for other"
    assert reports == [f"still not deleted after 0 s: RayCluster ns/rc {pending}"]
    await removal.report_orphans([], foreign=())
    assert f"the finalizer {FINALIZER} of 1 RayCluster (ns/rc) any more" in reports[1]
    assert '"path": "/metadata/finalizers/1"' in reports[1]
    with pytest.raises(UninstallIncomplete):
        await removal.conclude()
    assert reports[2:] == ["not deleted: 2 RayClusters (ns/free, ns/rc)"]


class ManyLeases:
    """A client for Leases with an operator's name in ``default`` and in many namespaces."""

    async def select(self, gvk: GVK, select: Callable[[Object], Any], **_: Any) -> list[Any]:
        if gvk != LEASE:
            return []
        namespaces = [*(f"aa-{number:02}" for number in range(12)), "default"]
        return [select({"metadata": {"name": "l", "namespace": each}}) for each in namespaces]


async def test_leases_of_tenants_do_not_hide_what_an_operator_left() -> None:
    found = await installation_check._state_elsewhere(cast("Client", ManyLeases()), "ops")
    assert found.startswith("; other namespaces contain Lease default/l, Lease aa-00/l, ")
    assert "Lease aa-03/l and 8 more: if cfo run left them there" in found


class ManyCRDs:
    """A client for a cluster that has all CRDs, without the labels in the manifests."""

    async def select(
        self, _: GVK, select: Callable[[Object], Any], *, label_selector: str = "", **__: Any
    ) -> list[Any]:
        return [] if label_selector else [select(crd) for crd in crds()]


async def test_kept_crds_are_all_named() -> None:
    (line,) = await kept_crds(cast("Client", ManyCRDs()), crds(), "ops")
    assert len(crds()) > MAX_NAMED
    assert all(name_of(crd) in line for crd in crds())


class ForbiddenNamespaces:
    """A client that is not allowed to read namespaces."""

    async def get(self, *_: Any, **__: Any) -> Object:
        raise Forbidden(403, {"message": "forbidden"})


async def test_namespace_that_cannot_be_read_may_have_an_operator() -> None:
    binding = {"kind": "ClusterRoleBinding", "subjects": [{"namespace": "codeflare"}]}
    client = cast("Client", ForbiddenNamespaces())
    assert await deleted_namespaces(client, [binding]) == set()
