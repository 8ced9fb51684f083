"""``cfo uninstall``; test/integration/test_install.py has the whole command."""

from __future__ import annotations

from typing import Any, cast

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console import uninstall
from cfo.runtime import Client, Conflict, Forbidden, NamespacedName, Object

FINALIZER = "ray.openshift.ai/oauth-finalizer"


class ContestedClient:
    """A client whose object another client changes before each write."""

    def __init__(self) -> None:
        self.writes = 0

    async def get(self, *_: Any, **__: Any) -> Object:
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
    removal = uninstall._Removal(cast("Client", client), reports.append, dry_run=False)
    await removal.remove_finalizer(RAY_CLUSTER, NamespacedName("ns", "rc"), FINALIZER)
    assert client.writes == 20
    assert reports == [
        f"not removed: finalizer {FINALIZER} of RayCluster ns/rc: changed by other clients 20 times"
    ]


class ForbiddenNamespaces:
    """A client that is not allowed to read namespaces."""

    async def get(self, *_: Any, **__: Any) -> Object:
        raise Forbidden(403, {"message": "forbidden"})


async def test_namespace_that_cannot_be_read_may_have_an_operator() -> None:
    binding = {"kind": "ClusterRoleBinding", "subjects": [{"namespace": "codeflare"}]}
    client = cast("Client", ForbiddenNamespaces())
    assert await uninstall._deleted_namespaces(client, [binding]) == set()
