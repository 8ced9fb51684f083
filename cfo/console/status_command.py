"""``cfo status``: print the state of all objects, what is wrong, and what to do about it.

It needs no operator, and only the permissions that the user has: what is forbidden or not installed is left out. Each
kind is listed in pages, and then watched, also for a single output: the informers are those of the operator, with their
limits.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import anyio
import click
from msgspec.structs import asdict

from cfo.api.kueue import LOCAL_QUEUES
from cfo.console.errors import (
    ClusterUnreadable,
    CommandFailed,
    InvalidInput,
    echo,
    one_line,
    run_async,
)
from cfo.console.execution import (
    CONTEXT,
    cluster_errors,
    command_transport,
    kubeconfig_option,
    timeout_option,
)
from cfo.console.namespaces import require_namespace
from cfo.console.summary_text import detail, listing, place_text
from cfo.console.summary_watch import can_replace_text, print_changes, replace_table
from cfo.runtime import (
    GVK,
    SECRET,
    Cache,
    Client,
    DiscoveryIncomplete,
    RESTMapper,
    SystemClock,
    Transport,
    UnknownKind,
    load_config,
)
from cfo.summaries.kind_view import KindView, one_version_of_each, related_kinds
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Summary, kind_names

_MAX_KIND = 100
"""The number of characters of an unknown kind that are compared with known ones."""
_UNHEALTHY_EXIT_CODE = 1
_INTERRUPTED_EXIT_CODE = 130
"""As of a process that SIGINT ended."""


@click.command("status")
@click.argument("targets", metavar="[KIND[/NAME]]", nargs=-1)
@click.option(
    "--namespace",
    "-n",
    metavar="NAMESPACE",
    help="Namespace; by default that of the kubeconfig's context.",
)
@click.option("--all-namespaces", "-A", is_flag=True, help="Show all namespaces.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the output; wide has all facts.",
)
@click.option(
    "--watch",
    "-w",
    is_flag=True,
    help="Show changes until interrupted: the table again on a terminal, otherwise one line for each change.",
)
@kubeconfig_option()
@CONTEXT
@timeout_option(
    "30s", "Time in which everything must be read; what could not be read by then is left out."
)
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    output: str,
    watch: bool,
    kubeconfig: str | None,
    context: str | None,
    timeout: float,
) -> None:
    """Show RayClusters, RayJobs, AppWrappers, FluxSetups, FluxJobs, MiniClusters and InferenceStacks.

    For each object: its state, what is wrong, and what to do about it. Changes nothing, and needs no more than your own
    permissions: what you are not allowed to read, or what is not installed, is left out.

    Exit codes: 0 if all is well, 1 if an object has an error or a warning, or if it does not exist, 2 for invalid
    arguments, such as a namespace that does not exist, 3 if the cluster cannot be reached or nothing can be read.
    """
    from cfo.features import all_views
    from cfo.runtime import logs

    views, name = _select(all_views(), targets)
    if all_namespaces and namespace:
        raise InvalidInput("--all-namespaces cannot be used with --namespace")
    if all_namespaces and name:
        raise InvalidInput("--all-namespaces cannot be used with a name")
    if watch and output != "table":
        raise InvalidInput(f"--watch cannot be used with --output {output}")
    logs.configure("console", "error")

    async def work() -> int:
        config = await load_config(kubeconfig, context=context)
        where: str | None = namespace or config.namespace
        option = "--namespace" if namespace else "kubeconfig"
        if all_namespaces:
            where = None
        async with (
            command_transport(config) as transport,
            connect(transport, views, where, timeout) as session,
        ):
            client = Client(transport, RESTMapper(transport), field_manager="cfo-status")
            if watch:
                if where:
                    await require_namespace(client, where, option)
                await _watch(session, where, name)
                return 0
            summaries = await session.overview.snapshot()
            if where and not summaries:
                await require_namespace(client, where, option)
            if name:
                summaries = [each for each in summaries if each.key.name == name]
            _report(views, name, summaries, session, output, where)
        is_wrong = any(each.level.is_wrong for each in summaries)
        return _UNHEALTHY_EXIT_CODE if is_wrong else 0

    try:
        with cluster_errors(reads_only=True):
            code = run_async(work)
    except KeyboardInterrupt:
        code = _INTERRUPTED_EXIT_CODE
    except NotReadable as error:
        raise ClusterUnreadable(one_line(error)) from None
    ctx.exit(code)


def _select(views: Sequence[KindView], targets: Sequence[str]) -> tuple[Sequence[KindView], str]:
    """Return the views and the name that KIND or KIND/NAME selects, as in kubectl: in any case, singular or plural.

    Raises :class:`InvalidInput`.
    """
    if not targets:
        return views, ""
    if len(targets) > 1:
        given = " ".join(targets)
        raise InvalidInput(f"{given!r}: must be one KIND or KIND/NAME, such as {_joined(targets)}")
    target = targets[0]
    kind, separator, name = target.partition("/")
    found = [view for view in views if kind.lower() in _names_of(view)]
    if not found:
        raise InvalidInput(_unknown_kind(kind, views))
    if separator and not name:
        raise InvalidInput(f"{target!r}: must be KIND or KIND/NAME")
    return found, name


def _unknown_kind(kind: str, views: Sequence[KindView]) -> str:
    from difflib import get_close_matches  # lazily: only for a wrong name

    names = [name for view in views for name in _names_of(view)]
    similar = get_close_matches(kind.lower()[:_MAX_KIND], names, n=1)
    suggestion = f"; did you mean {similar[0]}?" if similar else ""
    known = ", ".join(dict.fromkeys(view.gvk.kind.lower() for view in views))
    return f"{kind!r}: must be KIND or KIND/NAME, and KIND one of {known}{suggestion}"


def _joined(targets: Sequence[str]) -> str:
    """Return the first of ``targets``, with the second as its name if kubectl would understand them like this."""
    kind, name = targets[:2]
    if "/" in kind or "/" in name:
        return kind
    return f"{kind}/{name}"


def _names_of(view: KindView) -> tuple[str, ...]:
    kind = view.gvk.kind.lower()
    return (
        kind,
        f"{kind}s",
        f"{kind}.{view.gvk.group}",
        f"{kind}s.{view.gvk.group}",
        *view.short_names,
    )


async def _watch(session: Session, namespace: str | None, name: str) -> None:
    """Print what changes, until cancelled: a table on a terminal, otherwise one line for each change."""
    if can_replace_text():
        notes = partial(_notes, session, namespace)
        await replace_table(session.overview, namespace=namespace, name=name, notes=notes)
        return
    for line in _notes(session, namespace):
        echo(line, err=True)
    if not await session.overview.snapshot():
        echo(f"no objects in {place_text(namespace)}", err=True)
    await print_changes(session.overview, name=name)


def _report(
    views: Sequence[KindView],
    name: str,
    summaries: Sequence[Summary],
    session: Session,
    output: str,
    namespace: str | None,
) -> None:
    """Print the result; raises :class:`CommandFailed` if the selected object does not exist."""
    if name and not summaries:
        raise _missing(views, name, session, namespace)
    if output == "json":
        click.echo(json.dumps(_document(summaries, session.unavailable()), indent=2))
        return
    if output == "yaml":
        import yaml

        document = _document(summaries, session.unavailable())
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
        return
    now = SystemClock().now()
    lines = listing(summaries, now, namespace, wide=output == "wide")
    if name:
        lines = _details(summaries, now)
    for line in lines:
        echo(line)
    for line in _notes(session, namespace):
        echo(line, err=True)


def _missing(
    views: Sequence[KindView], name: str, session: Session, namespace: str | None
) -> CommandFailed:
    """Return the error for an object that was not found, or whose kind cannot be read."""
    kind = views[0].gvk.kind
    problem = "not found"
    unread = session.unread()
    reasons = [unread[view.gvk] for view in views if view.gvk in unread]
    if reasons:
        problem = f"cannot be read ({reasons[0]})"
    elif len(session.not_served) == len(views):
        problem = "cannot be read (not installed)"
    return CommandFailed(f"{kind} {name} in namespace {namespace}: {problem}")


def _details(summaries: Sequence[Summary], now: datetime) -> Iterator[str]:
    """Yield everything that is known about each object, with an empty line between two of them."""
    kinds = kind_names(summary.gvk for summary in summaries)
    for number, summary in enumerate(summaries):
        if number:
            yield ""
        yield from detail(summary, now, kinds)


def _notes(session: Session, namespace: str | None) -> list[str]:
    """Return lines about the kinds that cannot be read, lack objects, or are not installed."""
    notes = []
    unread = [f"{kind} ({reason})" for kind, reason in session.unavailable().items()]
    if unread:
        notes.append(f"not read: {', '.join(unread)}")
    forbidden = session.forbidden_resources()
    if forbidden:
        notes.append(
            f"forbidden in {place_text(namespace)}: list and watch of {', '.join(forbidden)}; ask the administrator "
            "for the permission"
        )
    left_out = session.overview.left_out()
    names = kind_names(session.overview.views)
    notes += [f"not complete: {names[gvk]}: {text}" for gvk, text in left_out.items()]
    served = {informer.gvk.kind for informer in session.overview.informers}
    missing = dict.fromkeys(gvk.kind for gvk in session.not_served if gvk.kind not in served)
    if missing:
        notes.append(f"not installed: {', '.join(missing)}")
    return notes


def _document(summaries: Sequence[Summary], unavailable: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that docs/status.md documents; ``unavailable`` are the kinds that could not be read."""
    return {
        "healthy": not any(summary.level.is_wrong for summary in summaries),
        "items": [_object_document(summary) for summary in summaries],
        "unavailable": dict(unavailable),
    }


def _object_document(summary: Summary) -> dict[str, Any]:
    """Return the document of one object."""
    return {
        "apiVersion": summary.gvk.api_version,
        "kind": summary.gvk.kind,
        "namespace": summary.key.namespace,
        "name": summary.key.name,
        "uid": summary.uid,
        "state": summary.state,
        "level": summary.level.value,
        "ready": summary.ready,
        "created": summary.created,
        "facts": dict(summary.facts),
        "problems": [asdict(problem) for problem in summary.problems],
        "conditions": [asdict(condition) for condition in summary.conditions],
        "warnings": [asdict(warning) for warning in summary.warnings],
    }


class NotReadable(Exception):
    """Raised if nothing can be read from the cluster; the message is one line."""


@dataclass(frozen=True, slots=True)
class Session:
    """An overview of what can be read.

    ``not_served`` are the kinds that the cluster does not have, and ``unknown`` those of which that was unknown at the
    start, because their API server did not respond, with the reason. ``resources`` are the names of the kinds in RBAC
    rules.
    """

    overview: Overview
    not_served: tuple[GVK, ...]
    unknown: Mapping[GVK, str]
    resources: Mapping[GVK, str]

    def forbidden_resources(self) -> list[str]:
        """Return the resources that the user is not allowed to list or watch, as kubectl writes them.

        Without Secrets: their metadata is needed, but the permission includes their content.
        """
        kinds = set(self.overview.forbidden()) - {SECRET}
        return sorted({self.resources.get(gvk, gvk.kind) for gvk in kinds})

    def unread(self) -> dict[GVK, str]:
        """Return the kinds that exist and cannot be read now, with a short reason."""
        forbidden = self.overview.forbidden()
        not_served = self.overview.not_served()
        found = {}
        for gvk, problem in sorted(self.overview.unavailable().items()):
            if gvk in forbidden:
                found[gvk] = "forbidden"
            elif gvk not in not_served:
                found[gvk] = self.unknown.get(gvk, problem)
        return found

    def unavailable(self) -> dict[str, str]:
        """Return the same by the names of the kinds, with the API group if the cluster has the kind in several."""
        not_served = self.overview.not_served()
        watched = [informer.gvk for informer in self.overview.informers]
        names = kind_names(gvk for gvk in watched if gvk not in not_served)
        return {names[gvk]: reason for gvk, reason in self.unread().items()}


@asynccontextmanager
async def connect(
    transport: Transport, views: Sequence[KindView], namespace: str | None, timeout: float
) -> AsyncIterator[Session]:
    """Yield a session in which each kind was read, or is forbidden. ``namespace``: ``None`` means all namespaces.

    Raises :class:`NotReadable` if that takes longer than ``timeout`` seconds, or if nothing can be read, and the errors
    of the client.
    """
    mapper = RESTMapper(transport)
    with anyio.move_on_after(timeout) as scope:
        shown = await _discover(mapper, (view.gvk for view in views))
        kinds = related_kinds(views)
        others = await _discover(mapper, kinds)
    if scope.cancelled_caught:
        raise NotReadable(f"{transport.config.server} does not answer within {timeout:g} s")
    if not shown.served and shown.unknown:
        raise NotReadable(next(iter(shown.unknown.values())))
    unknown = {**shown.unknown, **others.unknown}
    related = one_version_of_each((*others.served, *others.unknown))
    namespaces = None if namespace is None else [namespace]
    cache = Cache(transport, mapper, namespaces=namespaces)
    if not any(gvk in related for gvk in LOCAL_QUEUES):
        # The overview reports that Kueue is not installed, until it is.
        related += [gvk for gvk in kinds if gvk in LOCAL_QUEUES]
    readable = [view for view in views if view.gvk in shown.served or view.gvk in unknown]
    overview = Overview(cache, readable, related=related)
    not_served = tuple(view.gvk for view in views if view not in readable)
    resources = {**shown.served, **others.served}
    session = Session(overview, not_served, unknown, resources)
    async with anyio.create_task_group() as tasks:
        await tasks.start(cache.run)
        with anyio.move_on_after(timeout):
            await overview.wait_for_sync(except_for=unknown)
        _check_readable(session, shown.served, namespace, timeout)
        yield session
        tasks.cancel_scope.cancel()


def _check_readable(
    session: Session, served: Collection[GVK], namespace: str | None, timeout: float
) -> None:
    overview = session.overview
    informers = [informer for informer in overview.informers if informer.gvk in served]
    if not informers or any(informer.has_synced for informer in informers):
        return
    if all(informer.is_forbidden for informer in informers):
        where = place_text(namespace)
        alternative = "try -n NAMESPACE" if namespace is None else "check the namespace's name"
        names = ", ".join(sorted({session.resources[informer.gvk] for informer in informers}))
        raise NotReadable(
            f"you are not allowed to list {names} in {where}; {alternative}, or ask the administrator for the "
            "permission to list and watch them"
        )
    reasons = "; ".join(sorted(set(overview.unavailable().values())))
    raise NotReadable(f"nothing could be read within {timeout:g} s: {reasons}")


@dataclass(frozen=True, slots=True)
class _Discovery:
    """The kinds that the cluster serves, with their resources, and those of which that is unknown, with the reason."""

    served: Mapping[GVK, str]
    unknown: Mapping[GVK, str]


async def _discover(mapper: RESTMapper, kinds: Iterable[GVK]) -> _Discovery:
    served = {}
    unknown = {}
    for gvk in kinds:
        try:
            resource = await mapper.resource(gvk)
        except UnknownKind:
            continue
        except DiscoveryIncomplete as error:
            unknown[gvk] = str(error)
        else:
            served[gvk] = f"{resource.plural}.{gvk.group}".removesuffix(".")
    return _Discovery(served, unknown)
