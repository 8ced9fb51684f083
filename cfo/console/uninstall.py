"""``cfo uninstall``: removes an installation in an order that avoids deadlocks.

1. The webhook configurations: with ``failurePolicy: Fail``, and without their server, they would block all writes of
   the kinds that they are registered for.
2. With ``delete_crds``: the objects of our kinds, while the operator can still clean up what it created for them.
3. The operator's Deployment.
4. The operator's finalizers, which no one else would remove.
5. Everything else, including the NetworkPolicies that deny everything by default in whole namespaces.

RayClusters and their workloads are kept, and so is the namespace, because it may contain other objects.

Nothing is removed if the namespace has no operator, or if the cluster-scoped objects, whose names are the same in all
installations, belong to an operator in another namespace.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import click

from cfo.config.model import LeaderElection
from cfo.console.errors import CommandFailed, echo
from cfo.console.execution import YES, confirm, kubeconfig_option, run_with_client, timeout_option
from cfo.features import KINDS, all_views
from cfo.manifests.names import DEFAULT_NAMESPACE, LABELS
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.overlays import COMPONENTS, bundled_crds, render
from cfo.operator import WEBHOOK_SECRET_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    POD,
    SECRET,
    Client,
    Conflict,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    gvk_of,
    has_finalizer,
    key_of,
    name_of,
    set_finalizer,
)
from cfo.runtime.objects import LEASE
from cfo.summaries.kind_view import summarize
from cfo.version import CONFIG_MAP_NAME


@click.command("uninstall")
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Namespace of the operator."
)
@kubeconfig_option("it needs cluster-admin permissions.")
@click.option(
    "--crds",
    is_flag=True,
    help="Also delete our CRDs, and with them all AppWrappers and Flux objects.",
)
@timeout_option(
    120.0,
    "Time to wait until the objects of each of our CRDs are deleted, and then until the operator's pods are.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be removed.")
@click.option(
    "--leftovers",
    is_flag=True,
    help="Continue if the operator itself is not in the namespace any more.",
)
@YES
def command(
    namespace: str,
    kubeconfig: str | None,
    crds: bool,
    timeout: float,
    dry_run: bool,
    leftovers: bool,
    yes: bool,
) -> None:
    """Uninstall the operator.

    Removes its webhook configurations and finalizers, so that they cannot block writes or deletions. RayClusters are
    kept. Changes nothing if the namespace has no operator.
    """

    async def check(client: Client) -> str:
        await check_installation(client, namespace, leftovers=leftovers)
        return client.transport.config.server

    async def work(client: Client) -> None:
        await uninstall(client, namespace, echo, delete_crds=crds, dry_run=dry_run, timeout=timeout)

    try:
        server = run_with_client(kubeconfig, "cfo-uninstall", check)
        if not yes and not dry_run:
            kinds = ", ".join(f"{gvk.kind}s" for gvk in _own_kinds())
            what = f"the operator, its CRDs and all {kinds}" if crds else "the operator"
            confirm(f"Remove {what} in namespace {namespace} from {server}?")
        run_with_client(kubeconfig, "cfo-uninstall", work)
    except NotInstalled as error:
        raise CommandFailed(str(error)) from None


_POLL_INTERVAL = 0.5  # seconds


class NotInstalled(Exception):
    """The namespace has no operator that :func:`uninstall` could remove; the message is one line."""


async def check_installation(client: Client, namespace: str, *, leftovers: bool = False) -> None:
    """Check that an operator of ``namespace`` is installed, at least in part.

    This requires an object of the installation in the namespace, or a cluster-scoped object that refers to it. With
    ``leftovers``, neither is required. Raises :class:`NotInstalled`, also when a cluster-scoped object refers to
    another namespace, and :class:`cfo.runtime.client.errors.APIError`.
    """
    found = False
    for obj in render(namespace=namespace, components=COMPONENTS):
        if obj["kind"] in ("Namespace", "CustomResourceDefinition"):
            continue
        gvk = gvk_of(obj)
        key = key_of(obj)
        try:
            stored = await client.get(gvk, key, live=True)
        except UnknownKind:
            continue
        if stored is None:
            continue
        others = _namespaces_in(stored) - {namespace}
        if others:
            raise NotInstalled(
                f"{gvk.kind} {key.name} belongs to an operator in namespace {min(others)}, not {namespace}; "
                "--namespace has to be the namespace of the operator"
            )
        found = found or key.namespace == namespace or bool(_namespaces_in(stored))
    if not found and not leftovers:
        raise NotInstalled(
            f"namespace {namespace} has no operator; --namespace selects another one, and --leftovers removes "
            "finalizers and other objects that an operator left behind"
        )


def _namespaces_in(obj: Object) -> set[str]:
    """Return the namespaces to which a cluster-scoped object of an installation refers."""
    references: list[Object] = []
    if obj["kind"] == "ClusterRoleBinding":
        references += obj.get("subjects") or ()
    for webhook in obj.get("webhooks") or ():
        references.append((webhook.get("clientConfig") or {}).get("service") or {})
    return {item["namespace"] for item in references if item.get("namespace")}


async def uninstall(
    client: Client,
    namespace: str,
    report: Callable[[str], None],
    *,
    delete_crds: bool = False,
    dry_run: bool = False,
    timeout: float = 120.0,
) -> None:
    """Remove the operator from ``namespace`` and call ``report`` once per step.

    Call :func:`check_installation` first. With ``delete_crds``, our CRDs and all their objects are deleted as well.
    With ``dry_run``, nothing is changed, and the lines name what would be removed. ``timeout`` is how long, in seconds,
    to wait for the objects of each kind, and again for the operator's pods, to be deleted. If it expires, this is
    reported, and the removal continues. Objects that do not exist are skipped, so the function can be called again.
    Raises :class:`cfo.runtime.client.errors.APIError`.
    """
    removal = _Removal(client, report, dry_run)
    objects = render(namespace=namespace, components=COMPONENTS)
    webhooks = [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration")]
    others = ("Namespace", "CustomResourceDefinition", "Deployment")
    rest = [obj for obj in reversed(objects) if obj not in webhooks and obj["kind"] not in others]
    for obj in webhooks:
        await removal.delete(gvk_of(obj), key_of(obj))
    if delete_crds:
        for gvk in _own_kinds():
            for obj in await _list(client, gvk):
                await removal.delete(gvk, key_of(obj))
            await removal.wait_for_deletion(gvk, timeout)
    await removal.delete(DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME))
    labels = ",".join(f"{key}={value}" for key, value in LABELS.items())
    await removal.wait_for_deletion(POD, timeout, namespace=namespace, label_selector=labels)
    for kind in KINDS:
        for gvk, finalizer in kind.finalizers().items():
            for obj in await _list(client, gvk):
                await removal.remove_finalizer(gvk, key_of(obj), finalizer)
    for kind in KINDS:
        for left in kind.leftovers():
            for obj in await _list(client, left.gvk, label_selector=left.label):
                if left.name in ("", name_of(obj)):
                    await removal.delete(left.gvk, key_of(obj))
    for obj in rest:
        await removal.delete(gvk_of(obj), key_of(obj))
    names = {
        SECRET: WEBHOOK_SECRET_NAME,
        LEASE: LeaderElection().resource_name,
        CONFIG_MAP: CONFIG_MAP_NAME,
    }
    for gvk, name in names.items():
        await removal.delete(gvk, NamespacedName(namespace, name))
    if delete_crds:
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition":
                await removal.delete(gvk_of(obj), NamespacedName("", name_of(obj)))


def _own_kinds() -> list[GVK]:
    """Return the kinds whose CRDs belong to the installation."""
    groups = {crd["spec"]["group"] for crd in bundled_crds()}
    kinds: list[GVK] = []
    for kind in KINDS:
        kinds += (gvk for gvk in kind.gvks if gvk.group in groups)
    return kinds


async def _list(client: Client, gvk: GVK, **options: str) -> list[Object]:
    try:
        return await client.list(gvk, live=True, **options)
    except (UnknownKind, NotFound):
        return []


class _Removal:
    """Deletes objects and removes finalizers, or, in a dry run, only reports which."""

    def __init__(self, client: Client, report: Callable[[str], None], dry_run: bool) -> None:
        self._client = client
        self._report = report
        self._dry_run = dry_run
        self._planned: set[tuple[GVK, NamespacedName]] = set()

    async def delete(self, gvk: GVK, key: NamespacedName) -> None:
        """Delete an object if it exists."""
        try:
            if self._dry_run:
                await self._plan_deletion(gvk, key)
            elif await self._client.delete(gvk, key):
                self._report(f"deleted {gvk.kind} {key}")
        except (UnknownKind, NotFound):
            return

    async def _plan_deletion(self, gvk: GVK, key: NamespacedName) -> None:
        if (gvk, key) in self._planned:
            return
        if await self._client.get(gvk, key, live=True) is not None:
            self._planned.add((gvk, key))
            self._report(f"would delete {gvk.kind} {key}")

    async def wait_for_deletion(self, gvk: GVK, timeout: float, **options: str) -> None:
        """Wait until no object that ``options`` select exists, for at most ``timeout`` seconds."""
        if self._dry_run:
            return
        left: list[Object] = []
        with anyio.move_on_after(timeout):
            while True:
                left = await _list(self._client, gvk, **options)
                if not left:
                    return
                await anyio.sleep(_POLL_INTERVAL)
        views = {view.gvk: view for view in all_views()}
        for obj in left[:5]:
            why = summarize(views[gvk], obj).pending if gvk in views else "still exists"
            self._report(f"still not deleted after {timeout:g} s: {gvk.kind} {key_of(obj)} {why}")

    async def remove_finalizer(self, gvk: GVK, key: NamespacedName, finalizer: str) -> None:
        """Remove our finalizer from an object; retry if another client has changed the object concurrently."""
        while True:
            obj = await self._client.get(gvk, key, live=True)
            if obj is None or not has_finalizer(obj, finalizer):
                return
            if self._dry_run:
                self._report(f"would remove finalizer {finalizer} from {gvk.kind} {key}")
                return
            try:
                if await set_finalizer(self._client, obj, finalizer, present=False) is not None:
                    self._report(f"removed finalizer {finalizer} from {gvk.kind} {key}")
            except Conflict:
                continue
            return
