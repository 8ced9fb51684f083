"""Test environment of the AppWrapper controllers: a control plane, the controllers, and a client with helpers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.appwrapper.names import ANNOTATION_PREFIX, APPWRAPPER, FIELD_MANAGER
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.controllers import appwrapper
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, name_of
from cfo.runtime.process.clock import Clock
from envtest import ControlPlane, EmbeddedControlPlane
from test.support.clocks import SkippingClock, SteppedClock
from test.support.planes import local_config, new_plane
from test.support.raycluster_environment import Environment, eventually

CONTROLLERS = (
    "gc",
    "namespace",
    "serviceaccount",
    "pods",
    "job",
    "deployment",
    "replicaset",
    "statefulset",
)
"""The embedded control plane's controllers that create and run pods."""

SHORT_PERIODS: dict[str, str] = {
    "admissionGracePeriod": "10s",
    "warmupGracePeriod": "10s",
    "failureGracePeriod": "30ms",
    "resetPause": "30ms",
    "deletionGracePeriod": "10s",
}
"""Fault tolerance periods that are short enough for tests."""


def configuration(**settings: Any) -> AppWrapperConfiguration:
    """Return the configuration section ``appwrapper`` with ``settings`` (camelCase) and :data:`SHORT_PERIODS`."""
    tolerance = {**SHORT_PERIODS, **settings.pop("faultTolerance", {})}
    return AppWrapperConfiguration.from_document(
        {"enabled": True, "requireAdmissionWebhook": False, "faultTolerance": tolerance, **settings}
    )


def pod(
    name: str = "p", *, node: str = "", labels: dict[str, str] | None = None, **annotations: str
) -> Object:
    """Return a pod; ``annotations`` control the embedded pod runner (``finish_after="1"``)."""
    annotation_values = {
        f"envtest.cfo/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox"}],
    }
    if node:
        spec["nodeName"] = node
    metadata: dict[str, Any] = {
        "name": name,
        "annotations": annotation_values,
        "labels": labels or {},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(name: str = "j", *, parallelism: int = 1, **annotations: str) -> Object:
    """Return a Job; ``annotations`` control its pods, see :func:`pod`."""
    template = pod("", labels=None, **annotations)
    spec = {
        "parallelism": parallelism,
        "completions": parallelism,
        "backoffLimit": 0,
        "template": {
            "metadata": {"annotations": template["metadata"]["annotations"]},
            "spec": template["spec"],
        },
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def wrapper(
    *templates: Object,
    name: str = "w",
    namespace: str = "ns",
    suspend: bool = False,
    **settings: str,
) -> Object:
    """Return an AppWrapper of these components; ``settings`` are its annotations, such as ``retryLimit="1"``."""
    return {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {ANNOTATION_PREFIX + key: value for key, value in settings.items()},
        },
        "spec": {
            "suspend": suspend,
            "components": [{"template": template} for template in templates],
        },
    }


def state(obj: Object) -> tuple[Any, ...]:
    """Return phase, number of retries and conditions without times: the part of a status that recordings contain."""
    status = obj.get("status") or {}
    return (
        status.get("phase") or "",
        status.get("resettingCount") or 0,
        tuple(
            (item["type"], item["status"], item["reason"], item.get("message") or "")
            for item in status.get("conditions") or ()
        ),
    )


class AppWrapperEnvironment(Environment):
    """An environment that records every state of every AppWrapper, as reported by a watch."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        super().__init__(plane, client)
        self.states: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        self.snapshots: dict[tuple[str, str], list[Object]] = {}
        self.observer: Informer | None = None
        self.clock: SteppedClock | None = None
        self.least_step = 0.0
        """By how many seconds :meth:`skip_to_next_timer` moves the clocks at least; timers then run late."""

    async def wait_until_idle(self) -> None:
        """Wait until the controllers have nothing left to do, and :attr:`states` contains what they did."""
        await super().wait_until_idle()
        if self.observer is not None:
            await self._wait_for_informer(self.observer)

    async def skip_to_next_timer(self) -> None:
        """Move the clocks of the controllers and of the control plane to the next scheduled reconcile, if any.

        It does nothing if the controllers use the system clock.
        """
        if (
            self.clock is not None
            and self.manager is not None
            and isinstance(self.plane, EmbeddedControlPlane)
        ):
            seconds = self.clock.seconds_to_next_timer()
            if seconds > 0:
                seconds = max(seconds, self.least_step)
                await self.plane.advance(seconds)
                # A reconcile would take a step for a request of that duration, and pause accordingly.
                await self.wait_until_queues_are_empty()
                # What the control plane did may have begun a shorter time, which would be over before it is seen.
                earliest = self.clock.seconds_to_next_timer()
                if 0 < earliest < seconds:
                    seconds = max(earliest, self.least_step)
                self.clock.step(seconds)

    async def _wait_for_informer(self, informer: Informer) -> None:
        with contextlib.suppress(UnknownKind):  # a test may delete a CRD
            await super()._wait_for_informer(informer)

    async def get_wrapper(self, name: str = "w", namespace: str = "ns") -> Object:
        """Return the AppWrapper."""
        return await self.get(APPWRAPPER, name, namespace)

    async def wait_for_phase(self, *phases: str, name: str = "w", namespace: str = "ns") -> Object:
        """Wait until the AppWrapper is in one of ``phases``, and return it."""
        return await self.wait_until(
            lambda obj: state(obj)[0] in phases, f"phase {phases}", name=name, namespace=namespace
        )

    async def wait_for_condition(
        self,
        condition_type: str,
        status: str,
        reason: str = "",
        *,
        name: str = "w",
        namespace: str = "ns",
    ) -> Object:
        """Wait until the AppWrapper has the condition, and return it; any reason matches if ``reason`` is empty."""

        def holds(obj: Object) -> bool:
            return any(
                item[:2] == (condition_type, status) and (not reason or item[2] == reason)
                for item in state(obj)[2]
            )

        return await self.wait_until(
            holds, f"{condition_type} is {status} {reason}", name=name, namespace=namespace
        )

    async def wait_until(
        self,
        holds: Callable[[Object], bool],
        description: str,
        *,
        name: str = "w",
        namespace: str = "ns",
    ) -> Object:
        """Wait until ``holds(wrapper)`` is true, and return the AppWrapper as it was then.

        It may be true only for a moment, so what the watch reports meanwhile counts as well.
        """
        reported = self.snapshots.setdefault((namespace, name), [])
        already_reported = len(reported)

        async def check() -> Object | None:
            obj = await self.find(APPWRAPPER, name, namespace)
            for snapshot in reported[already_reported:]:
                if holds(snapshot):
                    return snapshot
            if self.clock is not None and (obj is None or not holds(obj)):
                await self.wait_until_idle()
                obj = await self.find(APPWRAPPER, name, namespace)
                if obj is not None and not holds(obj):
                    await self.skip_to_next_timer()
            assert obj is not None, f"{description}: AppWrapper {name} does not exist"
            assert holds(obj), f"{description}: {state(obj)}"
            return obj

        result: Object = await eventually(check, description)
        return result

    async def wait_until_deleted(self, name: str = "w", namespace: str = "ns") -> None:
        """Wait until the AppWrapper is deleted."""

        async def check() -> bool:
            obj = await self.find(APPWRAPPER, name, namespace)
            if obj is not None and self.clock is not None:
                await self.wait_until_idle()
                await self.skip_to_next_timer()
            assert obj is None, (
                f"{name} still exists: {state(obj)} {obj['metadata'].get('finalizers')}"
            )
            return True

        await eventually(check, f"{name} deleted")

    async def set_suspend(self, value: bool, name: str = "w", namespace: str = "ns") -> None:
        """Suspend or resume the AppWrapper, as a queue does."""
        await self.client.patch(
            APPWRAPPER, NamespacedName(namespace, name), {"spec": {"suspend": value}}
        )

    async def wait_for_phases(self, *phases: str, name: str = "w", namespace: str = "ns") -> None:
        """Wait until the watch has reported exactly these phases, in this order."""

        async def check() -> bool:
            result = self.observed_phases(name, namespace)
            assert result == list(phases), result
            return True

        await eventually(check, f"{phases}")

    def observed_phases(self, name: str = "w", namespace: str = "ns") -> list[str]:
        """Return the phases that the watch has reported so far, without repetitions."""
        result: list[str] = []
        for item in self.states.get((namespace, name), ()):
            if not result or result[-1] != item[0]:
                result.append(item[0])
        return result

    async def set_pod_status(
        self, name: str, phase: str, namespace: str = "ns", *, exit_code: int | None = None
    ) -> None:
        """Set the status of a pod, as the kubelet does."""
        status: dict[str, Any] = {"phase": phase}
        if exit_code is not None:
            terminated = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
            status["containerStatuses"] = [
                {
                    "name": "main",
                    "image": "i",
                    "imageID": "i",
                    "ready": False,
                    "restartCount": 0,
                    "state": terminated,
                }
            ]
        await self.client.patch(
            POD, NamespacedName(namespace, name), {"status": status}, subresource="status"
        )

    async def object_names(self, gvk: GVK, namespace: str = "ns") -> list[str]:
        """Return the sorted names of all objects of a kind."""
        return sorted(name_of(item) for item in await self.client.list(gvk, namespace=namespace))


@asynccontextmanager
async def start_appwrapper_environment(
    *crds: Object, controllers: Sequence[str] | None = None
) -> AsyncIterator[AppWrapperEnvironment]:
    """Run a control plane with the CRD of AppWrappers and ``crds``.

    Given ``controllers``, it is the embedded one with these controllers; otherwise it may be the real one.
    """
    all_crds = [appwrapper_crd(), *crds]
    defaults = ("gc", "namespace", "serviceaccount", "resourcequota")
    plane = new_plane(all_crds, controllers or defaults, embedded=controllers is not None)
    async with plane, Transport(local_config(plane)) as transport:
        client = Client(
            transport, RESTMapper(transport, clock=SkippingClock()), field_manager="tester"
        )
        environment = AppWrapperEnvironment(plane, client)
        observer = Manager(local_config(plane))
        informer = environment.observer = observer.cache.informer(APPWRAPPER)

        def record(event: Any) -> None:
            if event.new is not None:
                states = environment.states.setdefault((event.key.namespace, event.key.name), [])
                snapshot = event.new.object()
                environment.snapshots.setdefault((event.key.namespace, event.key.name), []).append(
                    snapshot
                )
                new = state(snapshot)
                if not states or states[-1] != new:
                    states.append(new)

        informer.add_handler(record)
        running = asyncio.create_task(
            observer.run()
        )  # a separate task, because a fixture is torn down in another one
        await observer.started()
        try:
            yield environment
        finally:
            observer.stop()
            await running


@asynccontextmanager
async def run_appwrapper_controllers(
    environment: AppWrapperEnvironment,
    config: AppWrapperConfiguration | None = None,
    *,
    clock: Clock | None = None,
    token: str = "",
    transport: Transport | None = None,
    label_selector: str = "",
) -> AsyncIterator[Manager]:
    """Run the AppWrapper controllers until the end of the block; as admin, with ``token``, or on ``transport``.

    Only AppWrappers that ``label_selector`` matches are reconciled.
    """
    environment.clear_requests()
    settings = config or configuration()
    operator_settings = structs.replace(OperatorConfiguration(), appwrapper=settings)
    target = await environment.operator_config(operator_settings, token=token)
    connection = (
        contextlib.nullcontext(transport)
        if transport
        else Transport(target, observe=environment.exchanges.append)
    )
    async with connection as connected:
        options = ManagerOptions(
            field_manager=FIELD_MANAGER, selectors={APPWRAPPER: label_selector}
        )
        manager = Manager(connected, options, clock=clock)
        appwrapper.setup(manager, settings)
        environment.manager = manager
        environment.clock = clock if isinstance(clock, SteppedClock) else None
        try:
            async with manager:
                await manager.started()
                yield manager
        finally:
            environment.manager = environment.clock = None


async def settle(seconds: float = 0.05) -> None:
    """Sleep; call this before asserting that something did not happen."""
    await asyncio.sleep(seconds)
