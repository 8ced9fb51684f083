"""Test environment of the InferenceStack controllers: a control plane that runs pods, the controllers, and a client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from cfo.api.inferencestack.models import inference_stack_crds
from cfo.api.inferencestack.names import CLAIMS_FIELD_MANAGER, FIELD_MANAGER, INSTANCE_LABEL
from cfo.config.model import InferenceStackConfiguration, OperatorConfiguration
from cfo.controllers import inferencestack
from cfo.controllers.inferencestack.children import CHILD_KINDS
from cfo.runtime.cache.budget import NAMESPACE_BYTES
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import DEPLOYMENT
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, find_condition, name_of
from cfo.runtime.process.clock import Clock
from test.support.inference_stacks import stack
from test.support.planes import local_config, new_plane
from test.support.raycluster_environment import Environment, crd, eventually

STACK = GVK("doublewordai.co", "v1alpha1", "InferenceStack")
KEDA_CRD = crd("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")

READY: dict[str, Any] = {"podAnnotations": {"envtest.cfo/ready": "true"}}


def new_stack(
    applications: dict[str, Any] | None = None, name: str = "s", version: str = "v2", **spec: Any
) -> Object:
    """Return a stack without the fields that an API server sets."""
    obj = stack(applications, name, version, **spec)
    del obj["metadata"]["uid"]
    return obj


class InferenceEnvironment(Environment):
    """An environment with helpers for stacks and their objects."""

    async def stack(self, name: str = "s", namespace: str = "ns") -> Object:
        """Return the stack."""
        return await self.get(STACK, name, namespace)

    async def change(self, name: str = "s", namespace: str = "ns", **spec: Any) -> Object:
        """Merge ``spec`` into the spec of the stack, as a console does."""
        return await self.client.patch(STACK, NamespacedName(namespace, name), {"spec": spec})

    async def label(self, version: str | None, name: str = "s", namespace: str = "ns") -> Object:
        """Set the label ``operatorVersion`` of the stack, or remove it."""
        labels = {"metadata": {"labels": {"operatorVersion": version}}}
        return await self.client.patch(STACK, NamespacedName(namespace, name), labels)

    async def wait_for(
        self,
        holds: Callable[[Object], bool],
        description: str,
        name: str = "s",
        namespace: str = "ns",
    ) -> Object:
        """Wait until ``holds(stack)`` is true, and return the stack."""

        async def check() -> Object | None:
            obj = await self.stack(name, namespace)
            assert holds(obj), (description, obj.get("status"))
            return obj

        found: Object = await eventually(check, description)
        return found

    async def wait_for_condition(
        self, kind: str, status: str, reason: str = "", *, name: str = "s", namespace: str = "ns"
    ) -> Object:
        """Wait until the current generation of the stack has the condition; return the condition."""

        def holds(obj: Object) -> bool:
            found = condition(obj, kind)
            is_current = found.get("observedGeneration") == obj["metadata"]["generation"]
            return (
                is_current and found.get("status") == status and reason in ("", found.get("reason"))
            )

        return condition(
            await self.wait_for(holds, f"{kind} is {status} {reason}", name, namespace), kind
        )

    async def objects(
        self, name: str = "s", namespace: str = "ns", *extra: GVK
    ) -> dict[tuple[str, str], Object]:
        """Return the objects with the label of the stack, by kind and name."""
        return {
            (item["kind"], name_of(item)): item
            for gvk in (*CHILD_KINDS, *extra)
            for item in await self.client.list(
                gvk, namespace=namespace, label_selector=f"{INSTANCE_LABEL}={name}"
            )
        }

    async def generations(self, namespace: str = "ns") -> dict[str, int]:
        """Return the generation of each Deployment; it changes when its pods do."""
        return {
            name_of(item): item["metadata"]["generation"]
            for item in await self.client.list(DEPLOYMENT, namespace=namespace)
        }

    def writes(self) -> list[tuple[str, str]]:
        """Return verb and resource of the writes since :meth:`clear_requests`, except those of Events."""
        reads = ("get", "list", "watch", "discover")
        return [request for request in self.requests() if request[0] not in reads]

    def child_writes(self) -> list[str]:
        """Return the verbs of the writes to objects of stacks since :meth:`clear_requests`."""
        return [verb for verb, resource in self.writes() if "inferencestacks" not in resource]


def condition(obj: Object, kind: str) -> dict[str, Any]:
    """Return a condition of the stack; empty if it has none of this type."""
    return dict(find_condition((obj.get("status") or {}).get("conditions"), kind) or {})


def election(identity: str, namespace: str) -> LeaderElectionOptions:
    """Return options with short retries; the operators have different Leases of their own."""
    return LeaderElectionOptions(
        name=f"main-{identity}",
        namespace=namespace,
        identity=identity,
        lease_duration=15.0,
        renew_deadline=10.0,
        retry_period=0.1,
    )


@asynccontextmanager
async def start_inference_environment(
    *crds: Object, controllers: Sequence[str] = ("gc", "namespace", "pods", "deployment")
) -> AsyncIterator[InferenceEnvironment]:
    """Run a control plane with the CRDs of stacks and ``crds``, and the namespace ``ns``."""
    plane = new_plane([*inference_stack_crds(), *crds], tuple(controllers), embedded=True)
    async with plane, Transport(local_config(plane)) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="tester")
        environment = InferenceEnvironment(plane, client)
        await environment.create_namespace()
        yield environment


@asynccontextmanager
async def run_inference_controllers(
    environment: InferenceEnvironment,
    version: str = "v2",
    *,
    clock: Clock | None = None,
    token: str = "",
    transport: Transport | None = None,
    election: LeaderElectionOptions | None = None,
    namespace_bytes: int = NAMESPACE_BYTES,
    namespaces: Collection[str] | None = None,
    **settings: Any,
) -> AsyncIterator[Manager]:
    """Run the controllers of one major version until the end of the block; as admin, with ``token``, or a transport.

    They reconcile stacks in ``namespaces`` (``None``: in all).
    """
    environment.clear_requests()
    config = InferenceStackConfiguration(enabled=True, operator_version=version, **settings)
    operator_settings = structs.replace(OperatorConfiguration(), inference_stack=config)
    target = await environment.operator_config(operator_settings, token=token)
    connection = (
        contextlib.nullcontext(transport)
        if transport
        else Transport(target, observe=environment.exchanges.append)
    )
    async with connection as connected:
        options = ManagerOptions(
            field_manager=FIELD_MANAGER,
            field_managers=[CLAIMS_FIELD_MANAGER],
            leader_election=election,
            namespace_bytes=namespace_bytes,
            namespaces=namespaces,
        )
        manager = Manager(connected, options, clock=clock)
        inferencestack.setup(manager, config, election)
        environment.manager = manager
        try:
            async with manager:
                await manager.started()
                yield manager
        finally:
            environment.manager = None
