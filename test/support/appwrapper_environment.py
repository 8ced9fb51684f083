"""A small world for tests of the AppWrapper controllers: a control plane, the operator, and somebody who uses both."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cfo.api.appwrapper import APPWRAPPER
from cfo.api.appwrapper.models import appwrapper_crd
from cfo.config import AppWrapperConfiguration
from cfo.controllers import appwrapper
from cfo.controllers.appwrapper.names import ANNOTATION_PREFIX
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.client.transport import Transport
from cfo.runtime.clock import Clock
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import POD
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import GVK, NamespacedName, Object, name_of
from envtest import ControlPlane
from test.support.raycluster_environment import Environment, eventually

CONTROLLERS = ("gc", "namespace", "serviceaccount", "pods", "job", "deployment", "replicaset", "statefulset")
"""The embedded plane's controllers that make pods, and let them run."""

BRISK: dict[str, str] = {
    "admissionGracePeriod": "10s",
    "warmupGracePeriod": "10s",
    "failureGracePeriod": "30ms",
    "resetPause": "30ms",
    "deletionGracePeriod": "10s",
}
"""Periods that a test can wait for."""


def configuration(**settings: Any) -> AppWrapperConfiguration:
    """The configuration section with these settings, as a user writes them, and with brisk periods."""
    tolerance = {**BRISK, **settings.pop("faultTolerance", {})}
    return AppWrapperConfiguration.model_validate({"enabled": True, "faultTolerance": tolerance, **settings})


def pod(name: str = "p", *, node: str = "", labels: dict[str, str] | None = None, **annotations: str) -> Object:
    """A pod; ``annotations`` tell the pod runner what to make of it (``finish_after="1"``)."""
    told = {f"envtest.cfo/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    if node:
        spec["nodeName"] = node
    metadata: dict[str, Any] = {"name": name, "annotations": told, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(name: str = "j", *, parallelism: int = 1, **annotations: str) -> Object:
    """A Job whose pods do what ``annotations`` say; see :func:`pod`."""
    template = pod("", **annotations)
    spec = {
        "parallelism": parallelism,
        "completions": parallelism,
        "backoffLimit": 0,
        "template": {"metadata": {"annotations": template["metadata"]["annotations"]}, "spec": template["spec"]},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def wrapper(
    *templates: Object, name: str = "w", namespace: str = "ns", suspend: bool = False, **settings: str
) -> Object:
    """An AppWrapper of these components; ``settings`` are its annotations, such as ``retryLimit="1"``."""
    return {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {ANNOTATION_PREFIX + key: value for key, value in settings.items()},
        },
        "spec": {"suspend": suspend, "components": [{"template": template} for template in templates]},
    }


def state(obj: Object) -> tuple[Any, ...]:
    """Phase, retries and conditions: what the recordings have of a status, without times."""
    status = obj.get("status") or {}
    return (
        status.get("phase") or "",
        status.get("resettingCount") or 0,
        tuple(
            (item["type"], item["status"], item["reason"], item.get("message") or "")
            for item in status.get("conditions") or ()
        ),
    )


class Watched(Environment):
    """A world in which every state of every AppWrapper is noted, as a watch tells it."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        super().__init__(plane, client)
        self.states: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        self.shots: dict[tuple[str, str], list[Object]] = {}
        self.created: list[tuple[str, str, str]] = []

    async def _wait_for_informer(self, informer: Informer) -> None:
        with contextlib.suppress(UnknownKind):  # a kind may go in the course of a test
            await super()._wait_for_informer(informer)

    async def wrapper(self, name: str = "w", namespace: str = "ns") -> Object:
        """The AppWrapper."""
        return await self.get(APPWRAPPER, name, namespace)

    async def phase(self, *phases: str, name: str = "w", namespace: str = "ns") -> Object:
        """Waits until the AppWrapper is in one of ``phases``."""
        return await self.when(lambda obj: state(obj)[0] in phases, f"phase {phases}", name=name, namespace=namespace)

    async def condition(
        self, kind: str, status: str, reason: str = "", *, name: str = "w", namespace: str = "ns"
    ) -> Object:
        """Waits until the AppWrapper has the condition."""

        def holds(obj: Object) -> bool:
            return any(item[:2] == (kind, status) and (not reason or item[2] == reason) for item in state(obj)[2])

        return await self.when(holds, f"{kind} is {status} {reason}", name=name, namespace=namespace)

    async def when(
        self, holds: Callable[[Object], bool], what: str, *, name: str = "w", namespace: str = "ns"
    ) -> Object:
        """Waits until something holds of the AppWrapper."""

        async def look() -> Object | None:
            obj = await self.find(APPWRAPPER, name, namespace)
            assert obj is not None, f"{what}: there is no {name}"
            assert holds(obj), f"{what}: {state(obj)}"
            return obj

        found: Object = await eventually(look, what)
        return found

    async def gone(self, name: str = "w", namespace: str = "ns") -> None:
        """Waits until the AppWrapper is gone."""

        async def look() -> bool:
            obj = await self.find(APPWRAPPER, name, namespace)
            assert obj is None, f"{name} is still there: {state(obj)} {obj['metadata'].get('finalizers')}"
            return True

        await eventually(look, f"{name} gone")

    async def suspend(self, value: bool, name: str = "w", namespace: str = "ns") -> None:
        """Suspends or resumes, as a queue does."""
        await self.client.patch(APPWRAPPER, NamespacedName(namespace, name), {"spec": {"suspend": value}})

    async def went_through(self, *phases: str, name: str = "w", namespace: str = "ns") -> None:
        """Waits until the watch has told of these phases, and no others."""

        async def look() -> bool:
            found = self.phases(name, namespace)
            assert found == list(phases), found
            return True

        await eventually(look, f"{phases}")

    def phases(self, name: str = "w", namespace: str = "ns") -> list[str]:
        """The phases that the AppWrapper went through, as far as the watch has told."""
        found: list[str] = []
        for item in self.states.get((namespace, name), ()):
            if not found or found[-1] != item[0]:
                found.append(item[0])
        return found

    async def pod_status(self, name: str, phase: str, namespace: str = "ns", *, exit_code: int | None = None) -> None:
        """Plays the kubelet."""
        status: dict[str, Any] = {"phase": phase}
        if exit_code is not None:
            terminated = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
            status["containerStatuses"] = [
                {"name": "main", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": terminated}
            ]
        await self.client.patch(POD, NamespacedName(namespace, name), {"status": status}, subresource="status")

    async def names_of(self, gvk: GVK, namespace: str = "ns") -> list[str]:
        """The names of all objects of a kind."""
        return sorted(name_of(item) for item in await self.client.list(gvk, namespace=namespace))


@asynccontextmanager
async def watched_world(*crds: Object, controllers: Sequence[str] | None = None) -> AsyncIterator[Watched]:
    """A control plane with AppWrappers and ``crds``; the embedded one with ``controllers``, if some are given."""
    definitions = [appwrapper_crd(), *crds]
    plane: ControlPlane
    if controllers is None and os.environ.get("KUBEBUILDER_ASSETS"):
        plane = ControlPlane.real(crds=definitions)
    else:
        chosen = controllers or ("gc", "namespace", "serviceaccount", "resourcequota")
        plane = ControlPlane.embedded(crds=definitions, controllers=chosen)
    async with plane, Transport(ClientConfig.for_control_plane(plane)) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="tester")
        here = Watched(plane, client)
        observer = Manager(ClientConfig.for_control_plane(plane))
        informer = observer.cache.informer(APPWRAPPER)

        def note(event: Any) -> None:
            if event.new is not None:
                found = here.states.setdefault((event.key.namespace, event.key.name), [])
                shot = event.new.object()
                here.shots.setdefault((event.key.namespace, event.key.name), []).append(shot)
                new = state(shot)
                if not found or found[-1] != new:
                    found.append(new)

        informer.add_handler(note)
        running = asyncio.create_task(observer.run())  # not in this task: a fixture is left in another one
        await observer.started()
        try:
            yield here
        finally:
            observer.stop()
            await running


@asynccontextmanager
async def operating(
    here: Watched,
    config: AppWrapperConfiguration | None = None,
    *,
    clock: Clock | None = None,
    token: str = "",
    transport: Transport | None = None,
) -> AsyncIterator[Manager]:
    """Runs the AppWrapper controllers against the world until the end of the block."""
    here.clear_requests()
    target = ClientConfig.for_control_plane(here.plane, token=token or None)
    connection = contextlib.nullcontext(transport) if transport else Transport(target, observe=here.exchanges.append)
    async with connection as opened:
        manager = Manager(opened, ManagerOptions(field_manager=appwrapper.FIELD_MANAGER), clock=clock)
        appwrapper.setup(manager, config or configuration())
        here.manager = manager
        try:
            async with manager:
                await manager.started()
                yield manager
        finally:
            here.manager = None


async def settle(seconds: float = 0.05) -> None:
    """Lets a moment pass in which something that must not happen would."""
    await asyncio.sleep(seconds)
