"""``cfo run --embedded``: start a control plane and the operator, apply manifests, and wait until they have settled."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskStatus

from cfo import operator
from cfo.console.demo import crds
from cfo.console.demo.raycluster_nodes import setup as simulate_pods
from cfo.console.errors import CommandFailed, InvalidInput, one_line
from cfo.console.view.show import is_installed, is_interactive, print_changes, show_live
from cfo.console.view.text import problem_lines, table
from cfo.dashboard.in_cluster import manager_server
from cfo.dashboard.site import LoopbackServer
from cfo.features import all_views
from cfo.manifests.overlays import crds as own_crds
from cfo.runtime import (
    CONFIG_MAP,
    NAMESPACE,
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
from cfo.runtime.objects import new_object
from cfo.runtime.process import free_port
from cfo.runtime.webhook import WebhookURL
from cfo.summaries.kind_view import related_kinds
from cfo.summaries.overview import Overview
from envtest import ControlPlane
from envtest.formats.manifests import read_manifests

_log = structlog.get_logger(__name__)

CONFIGURATION = """\
# The operator's own proxies authenticate users of dashboards, because the OAuth proxy needs OpenShift.
kuberay:
  authentication:
    enabled: true
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

_CONTROLLERS = (
    "gc",
    "namespace",
    "serviceaccount",
    "pods",
    "deployment",
    "replicaset",
    "statefulset",
    "job",
)
"""The controllers of the control plane: garbage collection, namespaces, and all that create or simulate pods."""

_APPLY_ORDER = {"Namespace": 0, "CustomResourceDefinition": 0}


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

    ``until_settled`` is the number of seconds in which all objects must settle (see :class:`.Summary`); with ``None``,
    run until a signal. Raises :class:`InvalidInput`, and :class:`CommandFailed` with the objects that do not settle.
    """
    objects = read_objects(manifests)
    config_map = NamespacedName(namespace, config_name)
    async with control_plane(
        config_map, take_configuration(objects, config_map), kubeconfig
    ) as target:
        _print(f"control plane: {target.server}")
        _print(f"to use it from another terminal: export KUBECONFIG={kubeconfig.resolve()}")
        await _operate(target, config_map, objects, overview, until_settled, kubeconfig.resolve())


@asynccontextmanager
async def control_plane(
    config_map: NamespacedName, document: Mapping[str, str], kubeconfig: Path
) -> AsyncIterator[ClientConfig]:
    """Run a control plane in the block, with the operator's CRDs, its namespace, and its ConfigMap with ``document``.

    The kubeconfig of the control plane is written to ``kubeconfig``, and removed at the end. Raises
    :class:`InvalidInput` if it exists.
    """
    async with ControlPlane.embedded(
        crds=[*crds.load(), *own_crds()], controllers=_CONTROLLERS
    ) as plane:
        try:
            written = plane.kubeconfig(kubeconfig)
        except FileExistsError as error:
            raise InvalidInput(f"{error}; choose another path with --kubeconfig") from None
        try:
            target = ClientConfig.for_control_plane(plane)
            async with Transport(target) as transport:
                client = Client(transport, RESTMapper(transport), field_manager="cfo-demo")
                await _prepare(client, config_map, document)
            yield target
        finally:
            if (
                kubeconfig.is_file() and kubeconfig.read_text() == written
            ):  # else another control plane has replaced it
                kubeconfig.unlink(missing_ok=True)


async def _operate(
    target: ClientConfig,
    config_map: NamespacedName,
    objects: list[Object],
    overview: bool,
    until_settled: float | None,
    kubeconfig: Path,
) -> None:
    views = all_views()
    overviews: list[Overview] = []
    pages: list[LoopbackServer] = []
    reasons: list[str] = []
    async with anyio.create_task_group() as tasks:

        def configure_manager(manager: Manager) -> None:
            simulate_pods(manager)
            overviews.append(
                Overview(manager.cache, views, related=related_kinds(views), clock=manager.clock)
            )
            page = manager_server(manager, overviews[0], free_port())
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
            await show_live(
                view,
                title=f"dashboard: {pages[0].url}\nexport KUBECONFIG={kubeconfig}",
                with_log=True,
            )
            manager.stop()

        manager: Manager = await tasks.start(operate)
        (view,) = overviews
        if until_settled is None:
            _print(f"dashboard: {pages[0].url}")
        if overview and until_settled is None:
            tasks.start_soon(show, manager)
        await manager.ready()  # so that the webhooks process all applied objects
        await apply_objects(manager.api_reader.with_field_manager("cfo-demo"), objects)
        if until_settled is None:
            await anyio.sleep_forever()
        with anyio.move_on_after(until_settled), view.subscribe() as changes:
            while await _reasons(view, objects):
                await changes.next()
        reasons = await _reasons(view, objects)
        if overview:
            summaries = await view.snapshot()
            for line in (*table(summaries, manager.clock.now()), *problem_lines(summaries)):
                _print(line)
        manager.stop()
        await anyio.sleep_forever()
    if reasons:
        raise CommandFailed(f"not settled within {until_settled or 0:g} s: {'; '.join(reasons)}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _prepare(client: Client, config_map: NamespacedName, document: Mapping[str, str]) -> None:
    """Create the operator's namespace and ConfigMap."""
    with suppress(AlreadyExists):
        await client.create(new_object(NAMESPACE, config_map.namespace))
    with suppress(AlreadyExists):
        await client.create(
            new_object(CONFIG_MAP, config_map.name, config_map.namespace, data=dict(document))
        )


async def apply_objects(client: Client, objects: Sequence[Object]) -> None:
    """Apply the user's objects. Raises :class:`InvalidInput` if one is rejected."""
    for obj in objects:
        try:
            resource = await client.mapper.resource(gvk_of(obj))
            if resource.namespaced:
                obj["metadata"].setdefault("namespace", "default")
            await client.apply(obj)
        except (APIError, UnknownKind) as error:
            raise InvalidInput(
                one_line(f"cannot apply {gvk_of(obj).kind} {key_of(obj)}: {error}")
            ) from None


def take_configuration(objects: list[Object], config_map: NamespacedName) -> Mapping[str, str]:
    """Remove the operator's ConfigMap from ``objects``, and return its data; the demo's configuration if it is missing.

    The operator reads its configuration only when it starts, so this ConfigMap must exist before the others.
    """
    for index, obj in enumerate(objects):
        key = NamespacedName(obj["metadata"].get("namespace") or "default", name_of(obj))
        if gvk_of(obj) == CONFIG_MAP and key == config_map:
            return objects.pop(index).get("data") or {}
    return {"config.yaml": CONFIGURATION}


def read_objects(paths: Sequence[Path]) -> list[Object]:
    """Return the objects in ``paths`` (files or directories of manifests), namespaces and CRDs first.

    Raises :class:`InvalidInput` if a manifest cannot be read, or does not contain a Kubernetes object.
    """
    found: list[Object] = []
    for path in paths:
        try:
            found += read_manifests(path)
        except (OSError, ValueError) as error:
            raise InvalidInput(one_line(error)) from None
    for obj in found:
        if not gvk_of(obj).version or not name_of(obj):
            raise InvalidInput(
                f"{gvk_of(obj).kind} {name_of(obj)!r}: apiVersion and metadata.name are required"
            )
    return sorted(found, key=lambda obj: _APPLY_ORDER.get(obj["kind"], 1))


async def _reasons(overview: Overview, objects: Iterable[Object]) -> list[str]:
    """Return why ``objects`` have not settled yet; those of kinds without a view have."""
    summaries = {
        (each.gvk.group, each.gvk.kind, each.key): each for each in await overview.snapshot()
    }
    shown = {(gvk.group, gvk.kind) for gvk in overview.views}
    found = []
    for obj in objects:
        gvk, key = gvk_of(obj), key_of(obj)
        summary = summaries.get((gvk.group, gvk.kind, key))
        pending = summary.pending if summary is not None else "is missing"
        if pending and (gvk.group, gvk.kind) in shown:
            found.append(f"{gvk.kind} {key} {pending}")
    return found
