"""``cfo run --embedded``: start a control plane and the operator, apply manifests, and wait until they have settled."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo import operator
from cfo.console.dashboard.in_cluster import manager_server
from cfo.console.dashboard.loopback import LoopbackServer
from cfo.console.demo import crds, kuberay
from cfo.console.demo.settling import SETTLING_KINDS, Settling
from cfo.console.summaries import KINDS, RELATED_KINDS, Overview
from cfo.console.view.show import is_installed, is_interactive, print_changes, show_live
from cfo.console.view.text import problem_lines, table
from cfo.manifests.overlays import crds as own_crds
from cfo.runtime import (
    GVK,
    AlreadyExists,
    APIError,
    Client,
    ClientConfig,
    Manager,
    NamespacedName,
    Object,
    RESTMapper,
    Transport,
    UnknownKind,
    gvk_of,
    key_of,
    name_of,
)
from cfo.runtime.webhook import WebhookURL
from envtest import ControlPlane
from envtest.formats.manifests import read_manifests

__all__ = [
    "CONTROLLERS",
    "DemoFailed",
    "InvalidDemoInput",
    "apply_objects",
    "free_port",
    "prepare",
    "read_objects",
    "run_embedded",
    "take_configuration",
]

_log = structlog.get_logger("cfo.demo")

CONFIGURATION = """\
# The OAuth proxy needs OpenShift. With OAuth disabled, the dashboards get Ingresses.
kuberay:
  rayDashboardOAuthEnabled: false
  ingressDomain: apps.example.test
  mTLSEnabled: true
appwrapper:
  enabled: true
flux:
  enabled: true
inferenceStack:
  enabled: true
metrics:
  bindAddress: 127.0.0.1:0
health:
  bindAddress: 127.0.0.1:0
"""

CONTROLLERS = ("gc", "namespace", "serviceaccount", "pods", "deployment", "replicaset", "statefulset", "job")
"""The controllers of the control plane: garbage collection, namespaces, and all that create or simulate pods."""

_CONFIG_MAP = GVK("", "v1", "ConfigMap")

_APPLY_ORDER = {"Namespace": 0, "CustomResourceDefinition": 0}


class InvalidDemoInput(ValueError):
    """Raised for invalid input to the embedded mode; the message is one line."""


class DemoFailed(Exception):
    """Raised if the applied objects do not settle in time; the message is one line that lists the missing objects."""


async def run_embedded(
    *,
    namespace: str,
    config_name: str,
    kubeconfig: Path,
    manifests: Sequence[Path],
    overview: bool,
    until_settled: float | None,
) -> None:
    """Run the control plane and the operator until a signal is received or all applied objects have settled.

    The kubeconfig of the control plane is written to ``kubeconfig``, and removed on exit. ``until_settled`` is the
    number of seconds in which all objects must settle (see :class:`Settling`); with ``None``, run until a signal.

    Raises :class:`InvalidDemoInput` and :class:`DemoFailed`.
    """
    objects = read_objects(manifests)
    config_map = NamespacedName(namespace, config_name)
    document = take_configuration(objects, config_map)
    async with ControlPlane.embedded(crds=[*crds.load(), *own_crds()], controllers=CONTROLLERS) as plane:
        try:
            written = plane.kubeconfig(kubeconfig)
        except FileExistsError as error:
            raise InvalidDemoInput(f"{error}; choose another path with --kubeconfig") from None
        try:
            client_config = ClientConfig.for_control_plane(plane)
            await _run(client_config, config_map, document, objects, kubeconfig, overview, until_settled)
        finally:
            if kubeconfig.is_file() and kubeconfig.read_text() == written:  # else another control plane has replaced it
                kubeconfig.unlink(missing_ok=True)


async def _run(
    target: ClientConfig,
    config_map: NamespacedName,
    document: Mapping[str, str],
    objects: list[Object],
    kubeconfig: Path,
    overview: bool,
    until_settled: float | None,
) -> None:
    async with Transport(target) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="cfo-demo")
        await prepare(client, config_map, document)
    _print(f"control plane: {target.server}")
    _print(f"to use it from another terminal: export KUBECONFIG={kubeconfig.resolve()}")
    overviews: list[tuple[Overview, Settling]] = []
    pages: list[LoopbackServer] = []
    reasons: list[str] = []
    async with anyio.create_task_group() as tasks:

        def configure_manager(manager: Manager) -> None:
            kuberay.setup(manager)
            view = Overview(manager.cache, related=RELATED_KINDS, clock=manager.clock)
            overviews.append((view, Settling(manager, view)))
            page = manager_server(manager, KINDS, free_port())
            manager.add(page)
            pages.append(page)

        async def operate(*, task_status: TaskStatus[Manager]) -> None:
            await operator.run(
                target,
                config_map,
                webhook_url=WebhookURL("127.0.0.1", free_port()),
                configure_manager=configure_manager,
                task_status=task_status,
            )
            tasks.cancel_scope.cancel()

        async def show(manager: Manager) -> None:
            if not (is_interactive() and is_installed()):
                await print_changes(view, _print, manager.clock)
            await show_live(view, title=f"dashboard: {pages[0].url}", with_log=True)
            manager.stop()

        manager: Manager = await tasks.start(operate)
        ((view, settling),) = overviews
        if until_settled is None:
            _print(f"dashboard: {pages[0].url}")
        if overview and until_settled is None:
            tasks.start_soon(show, manager)
        await _wait_for_webhooks(manager)
        await apply_objects(manager.api_reader.with_field_manager("cfo-demo"), objects)
        if until_settled is None:
            await anyio.sleep_forever()
        expected = [(gvk, key_of(obj)) for obj in objects for gvk in SETTLING_KINDS if _is_a(obj, gvk)]
        with anyio.move_on_after(until_settled):
            await settling.wait(expected)
        reasons = await settling.reasons(expected)
        if overview:
            summaries = await view.snapshot()
            for line in (*table(summaries, manager.clock.now()), *problem_lines(summaries)):
                _print(line)
        manager.stop()
        await anyio.sleep_forever()
    if reasons:
        raise DemoFailed(f"not settled within {until_settled or 0:g} s: {'; '.join(reasons)}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_a(obj: Object, wanted: GVK) -> bool:
    gvk = gvk_of(obj)
    return (gvk.group, gvk.kind) == (wanted.group, wanted.kind)


async def _wait_for_webhooks(manager: Manager) -> None:
    """Wait until the operator's webhooks are ready, so that they process all applied objects.

    The AppWrapper controller accepts only AppWrappers that are created at least one second after their webhook was
    registered, because creation times have a precision of one second.
    """
    while "webhooks" in await manager.health.failures():  # noqa: ASYNC110 (a readiness check can only be polled)
        await anyio.sleep(0.02)
    await anyio.sleep(1 - manager.clock.now().microsecond / 1_000_000)


async def prepare(client: Client, config_map: NamespacedName, document: Mapping[str, str]) -> None:
    """Create the operator's namespace and ConfigMap."""
    with suppress(AlreadyExists):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": config_map.namespace}})
    with suppress(AlreadyExists):
        await client.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": config_map.namespace, "name": config_map.name},
                "data": dict(document),
            }
        )


async def apply_objects(client: Client, objects: Sequence[Object]) -> None:
    """Apply the user's objects. Raises :class:`InvalidDemoInput` if one is rejected."""
    for obj in objects:
        try:
            resource = await client.mapper.resource(gvk_of(obj))
            if resource.namespaced:
                obj["metadata"].setdefault("namespace", "default")
            await client.apply(obj)
        except (APIError, UnknownKind) as error:
            raise InvalidDemoInput(f"cannot apply {gvk_of(obj).kind} {key_of(obj)}: {error}") from None


def take_configuration(objects: list[Object], config_map: NamespacedName) -> Mapping[str, str]:
    """Remove the operator's ConfigMap from ``objects``, and return its data; the demo's configuration if it is missing.

    The operator reads its configuration only when it starts, so this ConfigMap must exist before the others.
    """
    for index, obj in enumerate(objects):
        key = NamespacedName(obj["metadata"].get("namespace") or "default", name_of(obj))
        if gvk_of(obj) == _CONFIG_MAP and key == config_map:
            return objects.pop(index).get("data") or {}
    return {"config.yaml": CONFIGURATION}


def read_objects(paths: Sequence[Path]) -> list[Object]:
    """Return the objects in ``paths`` (files or directories of manifests), namespaces and CRDs first.

    Raises :class:`InvalidDemoInput` if a manifest cannot be read, or does not contain a Kubernetes object.
    """
    found: list[Object] = []
    for path in paths:
        try:
            found += read_manifests(path)
        except (OSError, ValueError) as error:
            raise InvalidDemoInput(" ".join(str(error).split())) from None
    for obj in found:
        if not gvk_of(obj).version or not name_of(obj):
            raise InvalidDemoInput(f"{gvk_of(obj).kind} {name_of(obj)!r}: apiVersion and metadata.name are required")
    return sorted(found, key=lambda obj: _APPLY_ORDER.get(obj["kind"], 1))
