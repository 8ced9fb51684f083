"""``cfo uninstall``: removes an installation in an order that avoids deadlocks.

1. The webhook configurations: with ``failurePolicy: Fail``, and without their server, they would block all writes of
   the kinds that they are registered for.
2. With ``delete_crds``: the objects of our kinds, while the operator can still clean up what it created for them.
3. The operator's Deployment.
4. The operator's finalizers and conditions, which no one else would remove.
5. Everything else, including the NetworkPolicies that deny everything by default in whole namespaces.

RayClusters and their workloads are kept, and so is the namespace, because it may contain other objects.

Nothing is removed if the namespace has no operator, or if an operator runs that would not be removed, because it would
create its objects again. If cluster-scoped objects belong to an operator in another namespace, also under the names
that OLM generates, only what belongs to the named namespace is removed: the other operator needs the CRDs, the
ClusterRoles that are bound to it and the finalizers. Objects whose finalizers no operator removes any more are
reported. A namespace that does not exist has no operator, so what refers to it is removed; one that cannot be read may
have one.

The command fails if something that was asked for was not done, and can be repeated: without anything to remove, it
succeeds.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Final, TypeVar

import anyio
import click
from click.core import ParameterSource

from cfo.checks.findings import MIGRATION
from cfo.config.model import LeaderElection, OperatorConfiguration
from cfo.config.part import Part
from cfo.console.conditions import without_conditions
from cfo.console.counts import counted
from cfo.console.doctor.facts import is_go_deployment, read_installation
from cfo.console.doctor.other_operators import configuration_of
from cfo.console.errors import CommandFailed, echo
from cfo.console.execution import (
    CONTEXT,
    YES,
    confirm,
    kubeconfig_option,
    run_with_client,
    timeout_option,
)
from cfo.console.lease_holder import living_holder
from cfo.console.namespaces import check_name, has_namespace, no_namespace
from cfo.console.operator_namespaces import (
    bound_namespaces,
    namespaces_of_services,
    operator_namespaces,
)
from cfo.console.watched_bindings import ROLE_BINDING, SELECTOR, watched_bindings
from cfo.features import KINDS, OPTIONAL_ROLES, all_views
from cfo.manifests import guardrails, job_pod_policy
from cfo.manifests.names import DEFAULT_NAMESPACE, SERVICE_ACCOUNT
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.manifests.overlays import COMPONENTS, bundled_crds, render
from cfo.manifests.watched import watched_name
from cfo.operator import WEBHOOK_SECRET_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    POD,
    SECRET,
    Client,
    Conflict,
    Forbidden,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    gvk_of,
    has_finalizer,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    set_finalizer,
)
from cfo.runtime.objects import (
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.webhook import owner_of
from cfo.summaries.kind_view import summarize
from cfo.version import CONFIG_MAP_NAME, __version__


@click.command("uninstall")
@click.option(
    "-n",
    "--namespace",
    default=DEFAULT_NAMESPACE,
    show_default=True,
    help="Namespace of the operator.",
)
@kubeconfig_option("it needs cluster-admin permissions.")
@CONTEXT
@click.option(
    "--crds",
    is_flag=True,
    help="Also delete our CRDs, and with them all AppWrappers and Flux objects.",
)
@timeout_option(
    "2m",
    "Time to wait until the objects of each of our CRDs are deleted, and then until the operator's pods are.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be removed.")
@click.option(
    "--leftovers",
    is_flag=True,
    help="Continue if the operator itself is not in the namespace any more.",
)
@YES
@click.pass_context
def command(
    ctx: click.Context,
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    crds: bool,
    timeout: float,
    dry_run: bool,
    leftovers: bool,
    yes: bool,
) -> None:
    """Uninstall the operator.

    Removes its webhook configurations and finalizers, so that they cannot block writes or deletions. RayClusters are
    kept. Changes nothing if the namespace has no operator. Exit code 1: something that was asked for was not done.
    """

    is_named = ctx.get_parameter_source("namespace") is ParameterSource.COMMANDLINE
    check_name(namespace, "--namespace")

    async def check(client: Client) -> tuple[str, str, list[str]]:
        nothing = await check_installation(
            client, namespace, is_named=is_named, leftovers=leftovers, delete_crds=crds
        )
        notes = [] if nothing else await _notes(client, namespace)
        return nothing, client.transport.config.server, notes

    async def work(client: Client) -> None:
        await uninstall(client, namespace, echo, delete_crds=crds, dry_run=dry_run, timeout=timeout)

    try:
        nothing, server, notes = run_with_client(
            kubeconfig, "cfo-uninstall", check, context=context
        )
        if nothing:
            echo(f"nothing to remove: {nothing}")
            return
        for note in notes:
            echo(f"Note: {note}")
        if not yes and not dry_run:
            kinds = ", ".join(f"{gvk.kind}s" for gvk in _own_kinds())
            what = f"the operator, its CRDs and all {kinds}" if crds else "the operator"
            confirm(f"Remove {what} in namespace {namespace} from {server}?")
        run_with_client(kubeconfig, "cfo-uninstall", work, context=context)
    except (UninstallRefused, UninstallIncomplete) as error:
        raise CommandFailed(str(error)) from None


T = TypeVar("T")

_POLL_INTERVAL = 0.5  # seconds
_MAX_CONFLICTS = 20
"""How often the removal of a finalizer is tried while other clients change the object."""
_MAX_HOSTNAME = 63
"""Characters of a pod's hostname, with which the identity of its operator begins."""
_NAMESPACE_OF_RUN = "default"
"""The namespace of ``cfo run`` in the documentation, in which tenants have no permissions."""
_MAX_NAMED = 5
"""How many objects a line about several of one kind names."""
_NOTHING: Final = "the cluster has no operator and none of its finalizers"
_STATE: Final = {
    SECRET: WEBHOOK_SECRET_NAME,
    LEASE: LeaderElection().resource_name,
    CONFIG_MAP: CONFIG_MAP_NAME,
}
"""The objects that an operator creates in its namespace, by kind."""


class UninstallRefused(Exception):
    """:func:`uninstall` must not run; the message is one line."""


class UninstallIncomplete(Exception):
    """:func:`uninstall` did not do everything that was asked for; the message is one line, and others have details."""


async def check_installation(
    client: Client,
    namespace: str,
    *,
    is_named: bool = False,
    leftovers: bool = False,
    delete_crds: bool = False,
) -> str:
    """Check that an operator of ``namespace`` is installed, at least in part, and that no other one runs.

    This requires an object of the installation in the namespace, or a cluster-scoped object that refers to it. With
    ``leftovers``, neither is required, unless a cluster-scoped object refers to another namespace that exists. With
    ``delete_crds``, none may refer to another one that exists. Returns why there is nothing to remove; empty if there
    can be something. There is nothing if the cluster has no operator, and none of its finalizers and, with
    ``delete_crds``, of its CRDs; or if the user has named the namespace (``is_named``), as in a second run, and only
    another one has an operator. Raises :class:`UninstallRefused`, :class:`.InvalidInput` if the named namespace does
    not exist, and :class:`cfo.runtime.client.errors.APIError`.
    """
    is_installed = False
    elsewhere = ""
    abandoned = ""
    stored = await _stored_objects(client, namespace)
    deleted = await _deleted_namespaces(client, stored)
    for obj in stored:
        namespaces = _namespaces_in(obj)
        is_installed = is_installed or namespace in (namespace_of(obj), *namespaces)
        left = (namespaces & deleted) - {namespace}
        if left and not abandoned:
            abandoned = (
                f"{obj['kind']} {name_of(obj)} belongs to an operator in namespace {min(left)}, which does not exist; "
                f"remove what it left with: cfo uninstall --namespace {shlex.quote(min(left))}"
            )
        others = namespaces - {namespace} - deleted
        if others and not elsewhere:
            elsewhere = (
                f"{obj['kind']} {name_of(obj)} belongs to an operator in namespace {min(others)}"
            )
    installed = await _installed_elsewhere(client, namespace)
    if installed and not elsewhere:
        elsewhere = f"an administrator has installed an operator in namespace {min(installed)}"
    if is_named and not is_installed and not leftovers:
        if not await has_namespace(client, namespace):
            raise no_namespace(namespace, "--namespace")
        if abandoned:
            raise UninstallRefused(abandoned)
        if elsewhere and not delete_crds:
            return f"namespace {namespace} has no operator; {elsewhere}"
    if elsewhere and not is_installed:
        raise UninstallRefused(
            f"{elsewhere}, not {namespace}; --namespace has to be the namespace of the operator"
        )
    if elsewhere and delete_crds:
        raise UninstallRefused(f"{elsewhere}, which needs the CRDs; uninstall without --crds")
    if not is_installed and not leftovers:
        if abandoned:
            raise UninstallRefused(abandoned)
        remains = await _remains(client, namespace, stored, delete_crds=delete_crds)
        if not remains:
            parts = [_NOTHING + await _state_elsewhere(client, namespace)]
            parts += await _unguarded(client)
            return "; it has ".join(parts)
        raise UninstallRefused(
            f"namespace {namespace} has no operator, but {remains}; --namespace selects another one, and --leftovers "
            "removes what an operator left behind"
        )
    await _check_leases(client, namespace, stored, has_others=bool(elsewhere))
    return ""


async def _notes(client: Client, namespace: str) -> list[str]:
    """Return what the user should know before the operator in ``namespace`` is removed, as far as it can be read."""
    notes: list[str] = []
    installation = await read_installation(client, namespace)
    if is_go_deployment(installation.deployment, __version__):
        notes.append(f"namespace {namespace} has the Go operator; {MIGRATION}")
    signs = await _unproven_operators(client, namespace)
    if signs:
        more = f", and {len(signs) - _MAX_NAMED} more" if len(signs) > _MAX_NAMED else ""
        notes.append(
            f"{'; '.join(signs[:_MAX_NAMED])}{more}: users can create these; if it is an operator of yours, what it "
            "needs is removed as well, unless you apply its manifests again first"
        )
    return notes


async def _unproven_operators(client: Client, namespace: str) -> list[str]:
    """Describe what shows an operator in another namespace that no administrator has to have installed.

    It can be an operator outside the cluster, or one whose permissions and webhooks another installation has taken.
    """
    now = datetime.now(UTC)
    proven = {namespace, *await _installed_elsewhere(client, namespace)}

    def deployment_sign(deployment: Object) -> str | None:
        if namespace_of(deployment) in proven:
            return None
        return f"Deployment {key_of(deployment)} exists"

    def lease_sign(lease: Object) -> str | None:
        holder = living_holder(lease, now)
        if not holder or namespace_of(lease) in proven:
            return None
        return f"Lease {key_of(lease)} is held by {holder}"

    by_name = f"metadata.name={DEPLOYMENT_NAME}"
    signs = await client.select(DEPLOYMENT, deployment_sign, field_selector=by_name)
    by_name = f"metadata.name={LeaderElection().resource_name}"
    signs += await client.select(LEASE, lease_sign, field_selector=by_name)
    return sorted(signs)


async def _installed_elsewhere(client: Client, namespace: str) -> set[str]:
    """Return the other namespaces with an operator that an administrator has installed, under any names.

    OLM generates the names of ClusterRoleBindings and webhook configurations. A ClusterRoleBinding can be left of an
    operator that was removed, so a Deployment or a Lease that is renewed must exist as well.
    """
    found = bound_namespaces(await _list(client, CLUSTER_ROLE_BINDING))
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
        for configuration in await _list(client, kind):
            found |= namespaces_of_services(configuration)
    return {name for name in sorted(found - {namespace}) if await _has_operator(client, name)}


async def _has_operator(client: Client, namespace: str) -> bool:
    """Return whether ``namespace`` has the Deployment of an operator, or a Lease that is renewed."""
    deployment = NamespacedName(namespace, DEPLOYMENT_NAME)
    if await client.get(DEPLOYMENT, deployment, live=True) is not None:
        return True
    key = NamespacedName(namespace, LeaderElection().resource_name)
    lease = await client.get(LEASE, key, live=True)
    return lease is not None and living_holder(lease, datetime.now(UTC)) != ""


async def _deleted_namespaces(client: Client, stored: Iterable[Object]) -> set[str]:
    """Return the namespaces to which cluster-scoped objects in ``stored`` refer and that do not exist.

    One that the user is not allowed to read counts as existing.
    """
    referenced: set[str] = set()
    for obj in stored:
        referenced |= _namespaces_in(obj)
    return {name for name in sorted(referenced) if not await has_namespace(client, name)}


async def _remains(
    client: Client, namespace: str, stored: Sequence[Object], *, delete_crds: bool
) -> str:
    """Describe what there is of an operator in a cluster without its manifests; empty if there is nothing.

    It can be the operator itself, if other tools installed it, or what one outside the cluster left in ``namespace``.
    ``stored`` are objects of an installation that refer to no namespace, such as webhook configurations with a URL.
    Only Leases in ``namespace`` and in :func:`.operator_namespaces` count: users can create others.
    """
    bindings = await _list(client, CLUSTER_ROLE_BINDING)
    for where in sorted({namespace} | operator_namespaces(bindings, stored)):
        key = NamespacedName(where, LeaderElection().resource_name)
        holder = living_holder(await client.get(LEASE, key, live=True) or {}, datetime.now(UTC))
        if holder:
            return f"Lease {key} is held by {holder}"
    for obj in stored:
        return f"{obj['kind']} {name_of(obj)} exists"
    for kind in KINDS:
        for gvk, finalizer in kind.finalizers().items():
            keys = await _keys_with_finalizer(client, gvk, finalizer)
            if keys:
                return f"{_named(gvk, keys)} with the finalizer {finalizer} exist"
        for left in kind.leftovers():
            for key in await _keys(client, left.gvk, label_selector=left.label):
                if left.name in ("", key.name):
                    return f"{left.gvk.kind} {key} exists"
    state = [
        f"{gvk.kind} {name}"
        for gvk, name in _STATE.items()
        if await client.get(gvk, NamespacedName(namespace, name), live=True) is not None
    ]
    if state:
        return f"it contains {', '.join(state)}"
    if delete_crds:
        for crd in bundled_crds():
            if await client.get(gvk_of(crd), key_of(crd), live=True) is not None:
                return f"CustomResourceDefinition {name_of(crd)} exists"
    return ""


async def _state_elsewhere(client: Client, namespace: str) -> str:
    """Describe what other namespaces contain with the names that operators use; empty if there is nothing.

    ``cfo run`` leaves these objects in its namespace. It is no reason to fail, because any user can create them. Those
    in the namespace for which ``cfo run`` is documented come first, so that no number of others hides them.
    """
    found: list[tuple[bool, str]] = []
    for gvk, name in _STATE.items():
        with suppress(Forbidden):
            keys = await _keys(client, gvk, field_selector=f"metadata.name={name}")
            found += (
                (key.namespace != _NAMESPACE_OF_RUN, f"{gvk.kind} {key}")
                for key in keys
                if key.namespace != namespace
            )
    if not found:
        return ""
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    names = ", ".join(described for _, described in sorted(found)[:_MAX_NAMED])
    remedy = "if cfo run left them there, --namespace and --leftovers remove them"
    return f"; other namespaces contain {names}{more}: {remedy}"


async def _keys_with_finalizer(client: Client, gvk: GVK, finalizer: str) -> list[NamespacedName]:
    def key_with_finalizer(obj: Object) -> NamespacedName | None:
        return key_of(obj) if has_finalizer(obj, finalizer) else None

    return await _select(client, gvk, key_with_finalizer)


def _named(gvk: GVK, keys: Sequence[NamespacedName]) -> str:
    """Return the number of objects, and the names of the first ones."""
    names = [str(key) for key in sorted(keys)[:_MAX_NAMED]]
    if len(keys) > _MAX_NAMED:
        names.append("...")
    return f"{counted(len(keys), gvk.kind)} ({', '.join(names)})"


async def _stored_objects(client: Client, namespace: str) -> list[Object]:
    """Return the objects of an installation in ``namespace`` that exist, without Namespace and CRDs.

    Cluster-scoped objects have the same names in all installations, except for those of an additional operator in the
    namespace, and the ClusterRoleBindings of others, which are found by their labels.
    """
    found: dict[tuple[GVK, NamespacedName], Object] = {}
    for obj in [*_first_objects(namespace), *_additional_objects(namespace)]:
        if obj["kind"] in ("Namespace", "CustomResourceDefinition"):
            continue
        with suppress(UnknownKind):
            stored = await client.get(gvk_of(obj), key_of(obj), live=True)
            if stored is not None:
                found[gvk_of(obj), key_of(obj)] = stored
    for binding in await _list(client, CLUSTER_ROLE_BINDING, label_selector=SELECTOR):
        accounts = {subject.get("name") for subject in binding.get("subjects") or ()}
        if accounts == {SERVICE_ACCOUNT}:
            found.setdefault((CLUSTER_ROLE_BINDING, key_of(binding)), binding)
    return list(found.values())


@cache
def _first_objects(namespace: str) -> Sequence[Object]:
    """Return all objects that an operator in ``namespace`` can have that is not an additional one.

    They are rendered once, and callers do not change them.
    """
    return render(namespace=namespace, components=COMPONENTS, watch_namespaces=[namespace])


@cache
def _additional_objects(namespace: str) -> Sequence[Object]:
    """Return the ClusterRoles and ClusterRoleBindings that only an additional operator in ``namespace`` has.

    They are rendered once, and callers do not change them.
    """
    of_all = {name_of(obj) for obj in _first_objects(namespace)}
    part = {"watchNamespaces": [namespace]}
    objects = render(namespace=namespace, components=COMPONENTS, part=part)
    return [
        obj for obj in objects if not namespace_of(obj) and name_of(obj) not in {namespace, *of_all}
    ]


async def _check_leases(
    client: Client, namespace: str, stored: Iterable[Object], *, has_others: bool
) -> None:
    """Raise :class:`UninstallRefused` if an operator runs that is not a pod of the Deployment in ``namespace``.

    It renews the Lease in the namespace, or serves the webhooks from outside the cluster, which are kept if there is
    another installation (``has_others``).
    """
    leases = {NamespacedName(namespace, LeaderElection().resource_name)}
    for obj in stored:
        owner = owner_of(obj, "", "")
        if owner is None or owner.lease is None or _namespaces_in(obj) or has_others:
            continue
        leases.add(owner.lease)
    pods = await _keys(client, POD, namespace=namespace, label_selector=SELECTOR)
    identities = tuple(f"{pod.name[:_MAX_HOSTNAME]}_" for pod in pods)
    for key in sorted(leases):
        lease = await client.get(LEASE, key, live=True)
        holder = living_holder(lease or {}, datetime.now(UTC))
        if holder and not holder.startswith(identities):
            raise UninstallRefused(
                f"Lease {key} is held by {holder}; stop that operator, which would create its objects again"
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
    If a cluster-scoped object refers to another namespace that exists, or another one has an operator, only what
    belongs to ``namespace``, or to one that does not exist, is removed. Raises :class:`UninstallIncomplete`, after
    everything else was done, if objects still exist, or keep finalizers that no operator removes, and
    :class:`cfo.runtime.client.errors.APIError`.
    """
    removal = _Removal(client, report, dry_run)
    stored = await _stored_objects(client, namespace)
    own = {namespace, *await _deleted_namespaces(client, stored)}
    others = await _installed_elsewhere(client, namespace)
    for obj in stored:
        others |= _namespaces_in(obj) - own
    bindings = await watched_bindings(client, own)
    if others:
        await _remove_own_objects(removal, stored, bindings, namespace, own, timeout)
        report(_KEPT)
        for other in sorted(others):
            report(await _advice(client, other))
        await removal.report_orphans(await _parts(client, others))
        await removal.conclude()
        return
    objects = _first_objects(namespace)
    webhooks = [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration")]
    separate = ("Namespace", "CustomResourceDefinition", "Deployment", "ClusterRoleBinding")
    rest = [obj for obj in reversed(objects) if obj not in webhooks and obj["kind"] not in separate]
    for obj in webhooks:
        await removal.delete(gvk_of(obj), key_of(obj))
    if delete_crds:
        pods = await _keys(client, POD, namespace=namespace, label_selector=SELECTOR)
        for gvk in _own_kinds():
            for key in await _keys(client, gvk):
                await removal.delete(gvk, key)
            if pods:
                await removal.wait_for_deletion(gvk, timeout)
        if not pods and not dry_run:  # no operator removes its finalizers
            await _remove_finalizers(removal, client)
            for gvk in _own_kinds():
                await removal.wait_for_deletion(gvk, timeout)
    await removal.delete(DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME))
    await removal.wait_for_deletion(POD, timeout, namespace=namespace, label_selector=SELECTOR)
    await _remove_finalizers(removal, client)
    await _remove_conditions(removal, client)
    for kind in KINDS:
        for left in kind.leftovers():
            for key in await _keys(client, left.gvk, label_selector=left.label):
                if left.name in ("", key.name):
                    await removal.delete(left.gvk, key)
    # also the ClusterRoles of an additional operator, and all ClusterRoleBindings
    rest += [obj for obj in stored if obj["kind"] in ("ClusterRole", "ClusterRoleBinding")]
    for key in bindings:
        await removal.delete(ROLE_BINDING, key)
    for obj in rest:
        await removal.delete(gvk_of(obj), key_of(obj))
    await _remove_state(removal, namespace)
    if delete_crds:
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition":
                await removal.delete(gvk_of(obj), NamespacedName("", name_of(obj)))
    if not removal.has_found:
        report(f"nothing to remove: {_NOTHING}")
    kept = "would keep" if dry_run else "kept"
    if not delete_crds:
        for line in await _kept_crds(client, objects, namespace):
            report(f"{kept} {line}")
    for line in [*await _unguarded(client), *await _kept_guardrails(client)]:
        report(f"{kept} {line}")
    await removal.conclude()


async def _remove_finalizers(removal: _Removal, client: Client) -> None:
    """Remove our finalizers from all objects."""
    for kind in KINDS:
        for gvk, finalizer in kind.finalizers().items():
            for key in await _keys_with_finalizer(client, gvk, finalizer):
                await removal.remove_finalizer(gvk, key, finalizer)


async def _remove_conditions(removal: _Removal, client: Client) -> None:
    """Remove our conditions from objects whose status others write: nothing corrects them any more.

    Only metadata is listed: managedFields show whether the operator has written a status.
    """
    for kind in KINDS:
        has_status = partial(_key_with_status_of, kind.field_managers)
        for gvk, types in kind.conditions().items():
            keys = await _select(client, gvk, has_status)
            await removal.remove_conditions(gvk, keys, types)


def _key_with_status_of(managers: Collection[str], obj: Object) -> NamespacedName | None:
    """Return the key of an object if one of the field ``managers`` has written its status."""
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("subresource") == "status" and entry.get("manager") in managers:
            return key_of(obj)
    return None


async def _kept_crds(client: Client, objects: Iterable[Object], namespace: str) -> list[str]:
    """Describe which CRDs of ``objects``, an installation in ``namespace``, exist, and how they are deleted."""
    own = {key_of(obj) for obj in objects if gvk_of(obj) == CUSTOM_RESOURCE_DEFINITION}
    keys = [key for key in await _keys(client, CUSTOM_RESOURCE_DEFINITION) if key in own]
    if not keys:
        return []
    command = f"cfo uninstall --namespace {namespace} --crds --leftovers"
    return [
        f"{_named(CUSTOM_RESOURCE_DEFINITION, keys)} with their objects; to delete both: {command}"
    ]


async def _unguarded(client: Client) -> list[str]:
    """Describe the objects outside namespaces that only an operator deletes, and how they are deleted without one."""
    lines: list[str] = []
    for role in OPTIONAL_ROLES:
        if role.retained is None:
            continue
        gvk = role.retained.gvk
        label = role.retained.label
        keys = await _keys(client, gvk, label_selector=label)
        if keys:
            lines.append(
                f"{_named(gvk, keys)}, which objects of users need and no operator deletes any more; after these "
                f"objects, delete them: kubectl delete {gvk.kind.lower()} --selector {label}"
            )
    return lines


async def _kept_guardrails(client: Client) -> list[str]:
    """Describe what ``cfo manifests --tenant`` has created in namespaces of tenants, and how it is deleted."""
    names: dict[GVK, set[str]] = defaultdict(set)
    for obj in [*guardrails.namespaced(), *job_pod_policy.policies()]:
        names[gvk_of(obj)].add(name_of(obj))
    found: list[str] = []
    for gvk, own in names.items():
        keys = await _keys(client, gvk, label_selector=SELECTOR)
        kept = [key for key in keys if key.name in own]
        if kept:
            found.append(_named(gvk, kept))
    if not found:
        return []
    kinds = ",".join(gvk.kind.lower() for gvk in names)
    command = f"kubectl delete {kinds} --all-namespaces --selector {SELECTOR}"
    return [
        f"{', '.join(found)} of cfo manifests --tenant, with the labels of their namespaces; to delete them: {command}"
    ]


_KEPT = (
    "kept the CRDs, the ClusterRoles for users and the policy of reserved-hosts, which are for all operators; the "
    "uninstallation of the last operator deletes the ClusterRoles and the policy"
)


async def _parts(client: Client, namespaces: Iterable[str]) -> list[Part]:
    """Return the parts of the operators in ``namespaces``; one whose configuration cannot be read has all objects."""
    parts = []
    for namespace in sorted(namespaces):
        configuration = await configuration_of(client, namespace) or OperatorConfiguration()
        parts.append(Part.of(configuration, namespace))
    return parts


async def _advice(client: Client, other: str) -> str:
    """Return what was kept for the operator in the namespace ``other``, and how it gets what this one had taken."""
    kept = f"kept what the operator in namespace {other} needs"
    apply = f"apply its manifests: cfo doctor --namespace {other} prints the command"
    configuration = await configuration_of(client, other)
    if configuration is None or configuration.webhook.enabled is not False:
        return f"{kept}; if it lost webhooks or permissions to this one, {apply}"
    # Otherwise, the manifests would direct the webhooks to an operator that serves none, and nothing would be admitted.
    return (
        f"{kept}; it serves no webhooks: first remove webhook.enabled from its ConfigMap {CONFIG_MAP_NAME} and "
        f"restart it (kubectl rollout restart --namespace {other} deployment/{DEPLOYMENT_NAME}), then {apply}"
    )


async def _remove_own_objects(
    removal: _Removal,
    stored: Iterable[Object],
    bindings: Iterable[NamespacedName],
    namespace: str,
    own_namespaces: Set[str],
    timeout: float,
) -> None:
    """Remove what ``stored`` has in ``namespace``, and cluster-scoped objects that refer only to ``own_namespaces``.

    ``bindings`` are the RoleBindings of :func:`.watched_bindings`.
    """
    additional = [(obj["kind"], name_of(obj)) for obj in _additional_objects(namespace)]
    roles = _roles_only_of(stored, own_namespaces)
    roles |= {watched_name(name) for name in roles}
    own = [
        obj
        for obj in stored
        if namespace_of(obj) == namespace
        or _refers_only_to(obj, own_namespaces)
        or (obj["kind"], name_of(obj)) in additional
        or (obj["kind"] == "ClusterRole" and name_of(obj) in roles)
    ]
    for obj in own:
        if obj["kind"].endswith("WebhookConfiguration"):
            await removal.delete(gvk_of(obj), key_of(obj))
    await removal.delete(DEPLOYMENT, NamespacedName(namespace, DEPLOYMENT_NAME))
    await removal.wait_for_deletion(POD, timeout, namespace=namespace, label_selector=SELECTOR)
    for key in bindings:
        await removal.delete(ROLE_BINDING, key)
    for obj in own:
        await removal.delete(gvk_of(obj), key_of(obj))
    await _remove_state(removal, namespace)


def _refers_only_to(obj: Object, namespaces: Set[str]) -> bool:
    """Return whether a cluster-scoped object refers to at least one of ``namespaces``, and to no other one."""
    referenced = _namespaces_in(obj)
    return bool(referenced) and referenced <= namespaces


def _roles_only_of(stored: Iterable[Object], namespaces: Set[str]) -> set[str]:
    """Return the ClusterRoles that are bound to the operators in ``namespaces``, and to no other one."""
    own: set[str] = set()
    of_others: set[str] = set()
    for obj in stored:
        if obj["kind"] == "ClusterRoleBinding":
            names = own if _refers_only_to(obj, namespaces) else of_others
            names.add(obj["roleRef"]["name"])
    return own - of_others


async def _remove_state(removal: _Removal, namespace: str) -> None:
    """Remove what the operator itself created in its namespace."""
    for gvk, name in _STATE.items():
        await removal.delete(gvk, NamespacedName(namespace, name))


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


async def _select(
    client: Client, gvk: GVK, select: Callable[[Object], T | None], **options: str
) -> list[T]:
    """Return what ``select`` returns for the metadata of each object; objects of tenants do not fit into memory."""
    try:
        return await client.select(gvk, select, metadata_only=True, **options)
    except (UnknownKind, NotFound):
        return []


async def _keys(client: Client, gvk: GVK, **options: str) -> list[NamespacedName]:
    return await _select(client, gvk, key_of, **options)


class _Removal:
    """Deletes objects and removes finalizers, or, in a dry run, only reports which."""

    def __init__(self, client: Client, report: Callable[[str], None], dry_run: bool) -> None:
        self._client = client
        self._report = report
        self._dry_run = dry_run
        self._planned: set[tuple[GVK, NamespacedName]] = set()
        self._waited: list[tuple[GVK, Mapping[str, str]]] = []
        """What still existed after the time to wait for it: kinds and options that select their objects."""
        self._problems = 0
        self.has_found = False
        """Whether an object or a finalizer was removed, or would be."""

    async def delete(self, gvk: GVK, key: NamespacedName) -> None:
        """Delete an object if it exists."""
        try:
            if self._dry_run:
                await self._plan_deletion(gvk, key)
            elif await self._client.delete(gvk, key):
                self.has_found = True
                self._report(f"deleted {gvk.kind} {key}")
        except (UnknownKind, NotFound):
            return

    async def _plan_deletion(self, gvk: GVK, key: NamespacedName) -> None:
        if (gvk, key) in self._planned:
            return
        if await self._client.get(gvk, key, live=True) is not None:
            self._planned.add((gvk, key))
            self.has_found = True
            self._report(f"would delete {gvk.kind} {key}")

    async def wait_for_deletion(self, gvk: GVK, timeout: float, **options: str) -> None:
        """Wait until no object that ``options`` select exists, for at most ``timeout`` seconds."""
        if self._dry_run:
            return
        left: list[NamespacedName] = []
        with anyio.move_on_after(timeout):
            while True:
                left = await _keys(self._client, gvk, **options)
                if not left:
                    return
                await anyio.sleep(_POLL_INTERVAL)
        self._waited.append((gvk, options))
        for key in left[:_MAX_NAMED]:
            why = await self._pending(gvk, key)
            if why:
                self._report(f"still not deleted after {timeout:g} s: {gvk.kind} {key} {why}")

    async def _pending(self, gvk: GVK, key: NamespacedName) -> str:
        """Return what the deletion of an object waits for, as far as it is known; empty if it was deleted."""
        for view in all_views():
            if view.gvk == gvk:
                obj = await self._client.get(gvk, key, live=True)
                return summarize(view, obj).pending if obj is not None else ""
        return "still exists"

    async def remove_finalizer(self, gvk: GVK, key: NamespacedName, finalizer: str) -> None:
        """Remove our finalizer from an object."""

        async def remove(obj: Object) -> bool:
            return await set_finalizer(self._client, obj, finalizer, present=False) is not None

        is_removed = await self._remove_part(
            gvk,
            key,
            f"finalizer {finalizer}",
            is_present=lambda obj: has_finalizer(obj, finalizer),
            remove=remove,
        )
        if is_removed:
            self._report(f"{self._removed()} finalizer {finalizer} from {gvk.kind} {key}")

    async def remove_conditions(
        self, gvk: GVK, keys: Iterable[NamespacedName], types: Collection[str]
    ) -> None:
        """Remove our conditions, those of ``types``, from the status of objects; they are reported in one line."""

        async def remove(obj: Object) -> bool:
            status = {"conditions": without_conditions(obj, types)["status"]["conditions"]}
            try:
                await self._client.patch_object(
                    obj, {"status": status}, unchanged=True, subresource="status"
                )
            except NotFound:
                return False
            return True

        part = "the operator's conditions"
        changed: list[NamespacedName] = []
        for key in keys:
            is_removed = await self._remove_part(
                gvk,
                key,
                part,
                is_present=lambda obj: without_conditions(obj, types) is not obj,
                remove=remove,
            )
            if is_removed:
                changed.append(key)
        if changed:
            self._report(f"{self._removed()} {part} from {_named(gvk, changed)}")

    def _removed(self) -> str:
        return "would remove" if self._dry_run else "removed"

    async def _remove_part(
        self,
        gvk: GVK,
        key: NamespacedName,
        part: str,
        *,
        is_present: Callable[[Object], bool],
        remove: Callable[[Object], Awaitable[bool]],
    ) -> bool:
        """Remove ``part`` of an object, and return whether it was removed (in a dry run: would be).

        If another client has changed the object concurrently, this is tried again; after :data:`_MAX_CONFLICTS`
        attempts, it is reported. ``remove`` returns whether the object still existed.
        """
        for _ in range(_MAX_CONFLICTS):
            obj = await self._client.get(gvk, key, live=True)
            if obj is None or not is_present(obj):
                return False
            self.has_found = True
            if self._dry_run:
                return True
            try:
                return await remove(obj)
            except Conflict:
                continue
        self._problems += 1
        self._report(
            f"not removed: {part} of {gvk.kind} {key}: changed by other clients {_MAX_CONFLICTS} times"
        )
        return False

    async def report_orphans(self, parts: Iterable[Part]) -> None:
        """Report objects with our finalizers that are in none of ``parts``, which other operators reconcile."""
        parts = list(parts)
        for kind in KINDS:
            for gvk, finalizer in kind.finalizers().items():
                has_selector = gvk in kind.gvks and not kind.shared
                orphan = partial(_orphan, parts, finalizer, has_selector=has_selector)
                orphans = await _select(self._client, gvk, orphan)
                if orphans:
                    self._report_orphans(gvk, finalizer, orphans)

    def _report_orphans(
        self, gvk: GVK, finalizer: str, orphans: Sequence[tuple[NamespacedName, int]]
    ) -> None:
        """Report orphans: their keys, and the position of the finalizer in the list of each."""
        self._problems += 1
        key, index = min(orphans)
        # The patch names the position in the list; its test fails if another finalizer is there.
        position = f"/metadata/finalizers/{index}"
        patch = [
            {"op": "test", "path": position, "value": finalizer},
            {"op": "remove", "path": position},
        ]
        keys = [orphan for orphan, _ in orphans]
        self._report(
            f"no operator removes the finalizer {finalizer} of {_named(gvk, keys)} any more: let "
            "another operator reconcile them (watchNamespaces and labelSelector in its ConfigMap), or remove it from "
            "each; the path has its position among the finalizers of the object: kubectl "
            f"--namespace {key.namespace} patch {gvk.kind.lower()}.{gvk.group} {key.name} --type=json "
            f"-p {shlex.quote(json.dumps(patch))}"
        )

    async def conclude(self) -> None:
        """Report what still exists of what had to be deleted; raise :class:`UninstallIncomplete` for any problem."""
        for gvk, options in self._waited:
            keys = await _select(
                self._client, gvk, key_of if gvk == POD else _key_of_remaining, **options
            )
            if keys:
                self._problems += 1
                self._report(f"not deleted: {_named(gvk, keys)}")
        if self._problems and not self._dry_run:
            raise UninstallIncomplete(
                "the operator was removed, but not everything that belongs to it: the lines above say what is left"
            )


def _key_of_remaining(obj: Object) -> NamespacedName | None:
    """Return the key of an object, unless the API server deletes it, because no finalizer is left."""
    if is_deleting(obj) and not obj["metadata"].get("finalizers"):
        return None
    return key_of(obj)


def _orphan(
    parts: Sequence[Part], finalizer: str, obj: Object, *, has_selector: bool
) -> tuple[NamespacedName, int] | None:
    """Return the key of an object with our finalizer that is in none of ``parts``, and the finalizer's position."""
    if not has_finalizer(obj, finalizer):
        return None
    labels = labels_of(obj) if has_selector else None
    if any(part.covers(namespace_of(obj), labels) for part in parts):
        return None
    return key_of(obj), obj["metadata"]["finalizers"].index(finalizer)
