"""The environment of tests of the Flux controllers: a control plane, a user's client, and the controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from msgspec import structs

from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.flux.names import FIELD_MANAGER, FLUX_JOB, FLUX_SETUP, MINICLUSTER, STATES
from cfo.config.model import FluxConfiguration, OperatorConfiguration
from cfo.controllers import flux
from cfo.controllers.flux import minicluster
from cfo.controllers.flux.minicluster.status import ADDED_STATUS
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CONFIG_MAP, JOB, POD, SECRET, SERVICE
from cfo.runtime.objects.unstructured import GVK, Object, name_of
from cfo.runtime.process.clock import Clock
from test.support.planes import local_config, new_plane
from test.support.raycluster_environment import Environment, eventually

CHILD_KINDS: tuple[GVK, ...] = (CONFIG_MAP, SECRET, SERVICE, JOB, POD)

SCHEDULED = ("gc", "namespace", "serviceaccount", "job", "pods")
"""The embedded control plane's controllers that create and run the pods of Jobs."""


def mini_cluster(
    name: str = "flux-sample", namespace: str = "ns", *, command: str = "echo hello", **spec: Any
) -> Object:
    """Return a MiniCluster with one container; ``spec`` adds or replaces fields of its spec."""
    containers = [{"image": "ubuntu:noble", "command": command}]
    return {
        "apiVersion": MINICLUSTER.api_version,
        "kind": MINICLUSTER.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"size": 2, "containers": containers, **spec},
    }


def pod_annotations(**annotations: str) -> dict[str, Any]:
    """Return ``spec.pod`` with annotations that control the embedded pod runner (``finish_after="1"``)."""
    return {
        "annotations": {
            f"envtest.cfo/{key.replace('_', '-')}": value for key, value in annotations.items()
        }
    }


def true_conditions(obj: Object) -> list[str]:
    """Return the types of the conditions that are true, in their order."""
    return [
        item["type"]
        for item in (obj.get("status") or {}).get("conditions") or ()
        if item["status"] == "True"
    ]


def state(obj: Object) -> list[str]:
    """Return the types of the true conditions among the five of the Go operator."""
    return [kind for kind in true_conditions(obj) if kind in list(STATES)]


def condition(obj: Object, kind: str) -> Object:
    """Return the condition of this type; empty if there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item["type"] == kind), {})


class FluxEnvironment(Environment):
    """An environment with helpers for MiniClusters."""

    async def flux_children(self, namespace: str = "ns") -> dict[str, set[str]]:
        """Return the names of a namespace's objects by kind, without those that every namespace has."""
        return {
            gvk.kind: {
                name_of(item)
                for item in await self.client.list(gvk, namespace=namespace)
                if name_of(item) != "kube-root-ca.crt"
            }
            for gvk in CHILD_KINDS
        }

    async def wait_for(
        self,
        holds: Callable[[Object], bool],
        description: str,
        *,
        name: str = "flux-sample",
        namespace: str = "ns",
        gvk: GVK = MINICLUSTER,
    ) -> Object:
        """Wait until ``holds(object)`` is true, and return the object."""

        async def check() -> Object | None:
            obj = await self.find(gvk, name, namespace)
            assert obj is not None, f"{description}: {gvk.kind} {name} does not exist"
            assert holds(obj), f"{description}: {obj.get('status')}"
            return obj

        result: Object = await eventually(check, description)
        return result

    async def wait_for_state(
        self, *states: str, name: str = "flux-sample", namespace: str = "ns"
    ) -> Object:
        """Wait until exactly these of the Go operator's conditions are true."""
        return await self.wait_for(
            lambda obj: sorted(state(obj)) == sorted(states),
            f"{states}",
            name=name,
            namespace=namespace,
        )

    async def wait_until_removed(self, gvk: GVK, name: str, namespace: str = "ns") -> None:
        """Wait until an object does not exist."""

        async def check() -> bool:
            return await self.find(gvk, name, namespace) is None

        await eventually(check, f"{gvk.kind} {name} is deleted")

    async def pods(self, namespace: str = "ns") -> list[Object]:
        """Return the pods of a namespace, sorted by name."""
        return sorted(await self.client.list(POD, namespace=namespace), key=name_of)


def upstream_minicluster_crd() -> Object:
    """Return the CRD of MiniClusters without the fields that the Go operator's does not have."""
    crd = minicluster_crd()
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part, added in (("spec", {"suspend", "ttlSecondsAfterFinished"}), ("status", ADDED_STATUS)):
        for name in added:
            del fields[part]["properties"][name]
    crd["spec"]["versions"][0].pop("additionalPrinterColumns", None)
    return crd


@asynccontextmanager
async def start_flux_environment(
    *crds: Object, controllers: Sequence[str] | None = None, upstream: bool = False
) -> AsyncIterator[FluxEnvironment]:
    """Run a control plane with the CRDs of Flux and ``crds``, without the Flux controllers.

    ``upstream``: the CRD of MiniClusters has only the fields of the Go operator's.

    Given ``controllers``, it is the embedded one with these controllers; otherwise it may be the real one.
    """
    all_crds = [
        upstream_minicluster_crd() if upstream else minicluster_crd(),
        fluxjob_crd(),
        fluxsetup_crd(),
        *crds,
    ]
    plane = new_plane(all_crds, controllers, embedded=controllers is not None)
    async with plane, Transport(local_config(plane)) as transport:
        yield FluxEnvironment(
            plane, Client(transport, RESTMapper(transport), field_manager="tester")
        )


def minicluster_manager(transport: Transport, *, clock: Clock | None = None) -> Manager:
    """Return a manager with the controller of MiniClusters, not started."""
    manager = Manager(transport, ManagerOptions(field_manager=FIELD_MANAGER), clock=clock)
    minicluster.setup(manager)
    return manager


@asynccontextmanager
async def run_minicluster_controller(
    env: FluxEnvironment, *, clock: Clock | None = None, wait: bool = True, token: str = ""
) -> AsyncIterator[Manager]:
    """Run the controller of MiniClusters until the end of the block; as admin, or with ``token``."""
    env.clear_requests()
    configuration = FluxConfiguration.from_document({"enabled": True})
    operator_settings = structs.replace(OperatorConfiguration(), flux=configuration)
    config = await env.operator_config(operator_settings, token=token)
    async with Transport(config, observe=env.exchanges.append) as transport:
        manager = minicluster_manager(transport, clock=clock)
        env.manager = manager
        try:
            async with manager:
                await manager.started()
                if wait:
                    await env.wait_until_idle()
                yield manager
        finally:
            env.manager = None


def flux_job(
    name: str = "job", namespace: str = "ns", *, size: int | None = 2, **spec: Any
) -> Object:
    """Return a FluxJob like the sample of the first Flux operator; ``spec`` adds or replaces fields of its spec."""
    fields = {"image": "fluxrm/flux-sched:focal", "command": "sleep", "size": size, **spec}
    return {
        "apiVersion": FLUX_JOB.api_version,
        "kind": FLUX_JOB.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def flux_setup(
    name: str = "setup", namespace: str = "ns", *, max_size: int = 20, **spec: Any
) -> Object:
    """Return a FluxSetup whose jobs finish at once; ``spec`` adds fields, with ``_`` for ``-`` in their names."""
    defaults = {
        "size": 1,
        "pod": pod_annotations(phase="Succeeded"),
        **spec.pop("mini_cluster", {}),
    }
    return {
        "apiVersion": FLUX_SETUP.api_version,
        "kind": FLUX_SETUP.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "max-size": max_size,
            "mini-cluster": defaults,
            **{key.replace("_", "-"): value for key, value in spec.items()},
        },
    }


@asynccontextmanager
async def run_flux_controllers(
    env: FluxEnvironment,
    *,
    clock: Clock | None = None,
    wait: bool = True,
    transport: Transport | None = None,
    **settings: Any,
) -> AsyncIterator[Manager]:
    """Run all Flux controllers, with the configuration ``settings``, in the operator's namespace ``operator``.

    They use the permissions of the operator, or the connection ``transport``.
    """
    env.clear_requests()
    configuration = FluxConfiguration.from_document({"enabled": True, **settings})
    operator_settings = structs.replace(OperatorConfiguration(), flux=configuration)
    config = await env.operator_config(operator_settings)
    async with (
        nullcontext(transport)
        if transport
        else Transport(config, observe=env.exchanges.append) as connection
    ):
        options = ManagerOptions(field_manager="tester", field_managers=[FIELD_MANAGER])
        manager = Manager(connection, options, clock=clock)
        flux.setup(manager, configuration, "operator")
        env.manager = manager
        try:
            async with manager:
                await manager.started()
                if wait:
                    await env.wait_until_idle()
                yield manager
        finally:
            env.manager = None
