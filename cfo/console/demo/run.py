"""``cfo run --embedded``: start a control plane and the operator, apply manifests, and wait until they have settled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskStatus

from cfo import operator
from cfo.api.appwrapper.kinds import RAY_JOB
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo import crds
from cfo.console.demo.job_pods import USUAL_SECONDS
from cfo.console.demo.job_pods import setup as end_job_pods
from cfo.console.demo.kueue_queues import setup as simulate_queues
from cfo.console.demo.raycluster_nodes import setup as simulate_pods
from cfo.console.demo.rayjobs import setup as simulate_rayjobs
from cfo.console.errors import CommandFailed, InvalidInput, echo, one_line
from cfo.console.summary_text import listing
from cfo.console.summary_watch import print_changes, print_line
from cfo.dashboard.in_cluster import manager_server
from cfo.dashboard.site import LoopbackServer
from cfo.features import all_views
from cfo.manifests.overlays import crds as own_crds
from cfo.manifests.rbac import user_roles
from cfo.runtime import (
    CONFIG_MAP,
    NAMESPACE,
    AlreadyExists,
    APIError,
    Client,
    ClientConfig,
    Clock,
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
from cfo.summaries.kind_view import KindView, related_kinds
from cfo.summaries.overview import Overview
from envtest import ControlPlane
from envtest.formats.manifests import read_manifests

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
    "resourcequota",
    "clusterrole-aggregation",
    "persistentvolume",
)
"""The controllers of the control plane: garbage collection, namespaces, quotas, roles, volumes (without these, claims
cannot be deleted), and those that create pods."""

_SIMULATED = (
    "KubeRay and pods (no container runs, so no command fails: those of Jobs, RayJobs, FluxJobs and MiniClusters "
    f"succeed after their 'sleep N', or {USUAL_SECONDS:g} s; node selectors and volumes are not checked, "
    "except that Secrets whose name ends with not-found are missing), and "
    "Kueue for InferenceStacks only (for other objects with a queue it is not installed)"
)

_APPLIED_FIRST = frozenset({"Namespace", "CustomResourceDefinition"})
"""The kinds without which the API server rejects other objects."""


async def run_embedded(
    *,
    namespace: str,
    config_name: str,
    kubeconfig: Path,
    manifests: Sequence[Path],
    until_settled: float | None,
) -> None:
    """Run the control plane and the operator until a signal is received or all applied objects have settled.

    Prints the addresses of the control plane and the dashboard, what is simulated, one line for each change of an
    object, and one line when all applied objects have settled; the log is written to stderr.

    ``until_settled`` is the number of seconds in which all objects must settle (see :class:`.Summary`); with ``None``,
    run until a signal. Raises :class:`InvalidInput`, and :class:`CommandFailed` with the objects that do not settle.
    """
    objects = read_objects(manifests)
    config_map = NamespacedName(namespace, config_name)
    document = take_configuration(objects, config_map)
    async with control_plane(config_map, document, kubeconfig) as target:
        echo(f"control plane: {target.server}")
        echo(
            f"to use it with kubectl or cfo status from another terminal: export KUBECONFIG={kubeconfig.resolve()}"
        )
        echo(f"simulated: {_SIMULATED}")
        await _run_operator(target, config_map, objects, until_settled)


@asynccontextmanager
async def control_plane(
    config_map: NamespacedName, document: Mapping[str, str], kubeconfig: Path
) -> AsyncIterator[ClientConfig]:
    """Run a control plane in the block, with the operator's CRDs, its namespace, and its ConfigMap with ``document``.

    The kubeconfig of the control plane is written to ``kubeconfig``, and removed at the end. Raises
    :class:`InvalidInput` if it exists, or its folder does not.
    """
    async with ControlPlane.embedded(
        crds=[*crds.load([RAY_CLUSTER, RAY_JOB]), *own_crds()], controllers=_CONTROLLERS
    ) as plane:
        try:
            written = plane.kubeconfig(kubeconfig)
        except (FileExistsError, FileNotFoundError) as error:
            raise InvalidInput(
                f"{error}; choose another path: cfo run --embedded --kubeconfig PATH"
            ) from None
        try:
            target = ClientConfig.for_control_plane(plane)
            async with Transport(target) as transport:
                client = Client(transport, RESTMapper(transport), field_manager="cfo-demo")
                await _prepare(client, config_map, document)
            yield target
        finally:
            # Another control plane may have replaced the file by its own.
            if kubeconfig.is_file() and kubeconfig.read_text() == written:
                kubeconfig.unlink(missing_ok=True)


async def _run_operator(
    target: ClientConfig,
    config_map: NamespacedName,
    objects: list[Object],
    until_settled: float | None,
) -> None:
    """Run the operator, apply ``objects``, and print what changes.

    Raises :class:`CommandFailed` with the objects that have not settled after ``until_settled`` seconds.
    """
    demo: _Demo | None = None
    pending: list[str] = []
    async with anyio.create_task_group() as tasks:

        def configure_manager(manager: Manager) -> None:
            nonlocal demo
            demo = _set_up_demo(manager)

        async def run_operator(*, task_status: TaskStatus[Manager]) -> None:
            await operator.run(
                target,
                config_map,
                webhook_url=WebhookURL("127.0.0.1", free_port()),
                configure_manager=configure_manager,
                task_status=task_status,
            )
            # The operator has stopped, so whatever waits below must end, too.
            tasks.cancel_scope.cancel()

        manager: Manager = await tasks.start(run_operator)
        assert demo is not None  # start() returns after configure_manager was called
        overview = demo.overview
        if until_settled is None:
            echo(f"dashboard: {demo.page.url}")
        await manager.ready()  # so that the webhooks process all applied objects
        await apply_objects(manager.api_reader.with_field_manager("cfo-demo"), objects)
        with anyio.move_on_after(until_settled):
            await _wait_until_settled(overview, objects)
            await overview.wait_until_read()  # the lines about the last changes come first
            _print_settled(overview, objects, manager.clock)
        if until_settled is None:
            echo(f"dashboard: {demo.page.url}")  # again, because the log has moved it out of sight
            await anyio.sleep_forever()
        pending = await _pending_reasons(overview, objects)
        summaries = await overview.snapshot()
        for line in listing(summaries, manager.clock.now(), None):
            echo(line)
        manager.stop()
        await anyio.sleep_forever()  # until the operator has stopped
    if pending and until_settled is not None:
        raise CommandFailed(f"not settled within {until_settled:g} s: {'; '.join(pending)}")


class _Demo(msgspec.Struct, frozen=True):
    """What the manager serves in addition to the operator: the state of all objects, and the page that shows it."""

    overview: Overview
    page: LoopbackServer


def _set_up_demo(manager: Manager) -> _Demo:
    """Add simulated pods and queues, the dashboard, and the lines about changes to ``manager``."""
    simulate_pods(manager)
    simulate_rayjobs(manager)
    simulate_queues(manager)
    end_job_pods(manager)
    views = demo_views()
    overview = Overview(manager.cache, views, related=related_kinds(views), clock=manager.clock)
    page = manager_server(manager, overview, free_port())
    manager.add(page)
    manager.add(partial(print_changes, overview, clock=manager.clock))
    return _Demo(overview, page)


def demo_views() -> list[KindView]:
    """Return the views of all kinds: those whose queues are simulated do not report that Kueue is not installed."""
    return [
        replace(view, queue=None) if view.gvk in INFERENCE_STACKS else view for view in all_views()
    ]


async def _wait_until_settled(overview: Overview, objects: Sequence[Object]) -> None:
    """Wait until all ``objects`` have settled."""
    with overview.subscribe() as changes:
        while await _pending_reasons(overview, objects):
            await changes.next()


def _print_settled(overview: Overview, objects: Iterable[Object], clock: Clock) -> None:
    """Print that the workloads among ``objects`` have settled, unless there are none."""
    kinds = _kinds_with_view(overview)
    workloads = [obj for obj in objects if _group_kind(obj) in kinds]
    if workloads:
        print_line(f"✓ All applied workloads have settled ({len(workloads)})", clock)


async def _prepare(client: Client, config_map: NamespacedName, document: Mapping[str, str]) -> None:
    """Create the operator's namespace and ConfigMap, and the roles for users, which ``edit`` and ``view`` contain."""
    for role in user_roles():
        with suppress(AlreadyExists):
            await client.create(role)
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
    first = [obj for obj in found if obj["kind"] in _APPLIED_FIRST]
    others = [obj for obj in found if obj["kind"] not in _APPLIED_FIRST]
    return first + others


async def _pending_reasons(overview: Overview, objects: Iterable[Object]) -> list[str]:
    """Return the objects that have not settled yet, each with the reason.

    Objects of kinds without a view are ignored: nothing reports whether they have settled.
    """
    kinds = _kinds_with_view(overview)
    reasons: dict[tuple[str, str, NamespacedName], str] = {}
    for summary in await overview.snapshot():
        reasons[summary.gvk.group, summary.gvk.kind, summary.key] = summary.pending
    found: list[str] = []
    for obj in objects:
        group, kind = _group_kind(obj)
        if (group, kind) not in kinds:
            continue
        reason = reasons.get((group, kind, key_of(obj)), "is missing")
        if reason:
            found.append(f"{kind} {key_of(obj)} {reason}")
    return found


def _kinds_with_view(overview: Overview) -> set[tuple[str, str]]:
    return {(gvk.group, gvk.kind) for gvk in overview.views}


def _group_kind(obj: Object) -> tuple[str, str]:
    gvk = gvk_of(obj)
    return gvk.group, gvk.kind
