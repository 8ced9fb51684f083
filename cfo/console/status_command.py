"""``cfo status``: print the state of all objects, what is wrong, and what to do about it.

It needs no operator, and only the permissions that the user has: what is forbidden or not installed is left out. Each
kind is listed in pages, and then watched, also for a single output: the informers are those of the operator, with their
limits.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import click
from msgspec.structs import asdict

from cfo.console.errors import ClusterUnreadable, CommandFailed, InvalidInput, echo, run_async
from cfo.console.execution import kubeconfig_option, timeout_option
from cfo.console.view.show import (
    NOT_INSTALLED,
    is_installed,
    is_interactive,
    print_changes,
    show_live,
)
from cfo.console.view.text import counts, detail, problem_lines, table
from cfo.runtime import (
    GVK,
    APIError,
    Cache,
    ConfigError,
    DiscoveryIncomplete,
    RESTMapper,
    SystemClock,
    Transport,
    TransportError,
    UnknownKind,
    load_config,
)
from cfo.summaries.kind_view import KindView, related_kinds
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Summary

_UNHEALTHY_EXIT_CODE = 1
_INTERRUPTED_EXIT_CODE = 130
"""As of a process that SIGINT ended."""


@click.command("status")
@click.argument("target", metavar="[KIND[/NAME]]", required=False)
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
    help="Show changes until interrupted: live on a terminal, else as lines.",
)
@kubeconfig_option()
@click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig; by default the current one."
)
@timeout_option(
    30.0, "Time in which everything must be read; what could not be read by then is left out."
)
@click.pass_context
def command(
    ctx: click.Context,
    target: str | None,
    namespace: str | None,
    all_namespaces: bool,
    output: str,
    watch: bool,
    kubeconfig: str | None,
    context: str | None,
    timeout: float,
) -> None:
    """Show RayClusters, AppWrappers, FluxSetups, FluxJobs, MiniClusters and InferenceStacks.

    For each object: its state, what is wrong, and what to do about it. Changes nothing, and needs no more than your own
    permissions: what you are not allowed to read, or what is not installed, is left out.

    Exit codes: 0 if all is well, 1 if an object has an error or a warning (or does not exist), 2 for invalid arguments,
    3 if the cluster cannot be reached or nothing can be read.
    """
    from cfo.features import all_views
    from cfo.runtime import logs

    views, name = _select(all_views(), target)
    if all_namespaces and (namespace or name):
        raise InvalidInput(
            f"--all-namespaces cannot be used with {'--namespace' if namespace else 'a name'}"
        )
    if watch and output != "table":
        raise InvalidInput(f"--watch cannot be used with --output {output}")
    logs.configure("console", "error")

    async def work() -> int:
        config = await load_config(kubeconfig, context=context)
        where = None if all_namespaces else namespace or config.namespace
        async with (
            Transport(config) as transport,
            connect(transport, views, where, timeout) as session,
        ):
            if watch:
                await _watch(session, config.server)
                return 0
            summaries = [
                each
                for each in await session.overview.snapshot()
                if not name or each.key.name == name
            ]
            _report(views, name, summaries, session, output, where)
            return _UNHEALTHY_EXIT_CODE if any(each.level.is_wrong for each in summaries) else 0

    try:
        code = run_async(work)
    except KeyboardInterrupt:
        code = _INTERRUPTED_EXIT_CODE
    except (ConfigError, APIError, TransportError, DiscoveryIncomplete, NotReadable) as error:
        raise ClusterUnreadable(" ".join(str(error).split())) from None
    ctx.exit(code)


def _select(views: Sequence[KindView], target: str | None) -> tuple[Sequence[KindView], str]:
    """Return the views and the name that KIND or KIND/NAME selects, as in kubectl: in any case, singular or plural.

    Raises :class:`InvalidInput`.
    """
    if target is None:
        return views, ""
    kind, separator, name = target.partition("/")
    found = [view for view in views if kind.lower() in _names_of(view)]
    if not found:
        known = ", ".join(dict.fromkeys(view.gvk.kind.lower() for view in views))
        raise InvalidInput(f"{kind!r}: must be one of {known}")
    if separator and not name:
        raise InvalidInput(f"{target!r}: must be KIND or KIND/NAME")
    return found, name


def _names_of(view: KindView) -> tuple[str, ...]:
    kind = view.gvk.kind.lower()
    return (
        kind,
        f"{kind}s",
        f"{kind}.{view.gvk.group}",
        f"{kind}s.{view.gvk.group}",
        *view.short_names,
    )


async def _watch(session: Session, server: str) -> None:
    if is_interactive() and not is_installed():
        echo(NOT_INSTALLED, err=True)
    elif is_interactive():
        await show_live(session.overview, title=server, with_log=False)
        return
    await print_changes(session.overview, echo)


def _report(
    views: Sequence[KindView],
    name: str,
    summaries: Sequence[Summary],
    session: Session,
    output: str,
    namespace: str | None,
) -> None:
    """Print the result; raises :class:`CommandFailed` if the selected object does not exist."""
    unavailable = session.unavailable()
    if name and not summaries:
        kind = views[0].gvk.kind
        reason = unavailable.get(kind) or (
            "not installed" if len(session.not_served) == len(views) else ""
        )
        problem = f"cannot be read ({reason})" if reason else "not found"
        raise CommandFailed(f"{kind} {name} in namespace {namespace}: {problem}")
    if output == "json":
        click.echo(json.dumps(_document(summaries, unavailable), indent=2))
        return
    if output == "yaml":
        import yaml

        click.echo(
            yaml.safe_dump(_document(summaries, unavailable), sort_keys=False, allow_unicode=True),
            nl=False,
        )
        return
    now = SystemClock().now()
    if name:
        for number, summary in enumerate(summaries):
            for line in ([""] if number else []) + list(detail(summary, now)):
                echo(line)
    else:
        for line in table(summaries, now, wide=output == "wide", namespaces=namespace is None):
            echo(line)
        problems = list(problem_lines(summaries))
        for line in ["", *problems] if problems else []:
            echo(line)
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        for line in ([""] if summaries else []) + [f"{counts(summaries)} in {where}"]:
            echo(line)
    for line in _notes(session, unavailable):
        echo(line, err=True)


def _notes(session: Session, unavailable: dict[str, str]) -> list[str]:
    """Return one line about the kinds that cannot be read, and one about those that are not installed."""
    notes = []
    if unavailable:
        notes.append(
            f"not read: {', '.join(f'{kind} ({reason})' for kind, reason in unavailable.items())}"
        )
    if session.not_served:
        kinds = dict.fromkeys(gvk.kind for gvk in session.not_served)
        served = {informer.gvk.kind for informer in session.overview.informers}
        missing = [kind for kind in kinds if kind not in served]
        notes += [f"not installed: {', '.join(missing)}"] if missing else []
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
    """An overview of what can be read. ``not_served`` are the kinds that the cluster does not have."""

    overview: Overview
    not_served: tuple[GVK, ...]

    def unavailable(self) -> dict[str, str]:
        """Return the kinds that exist and cannot be read now, with a short reason."""
        forbidden = self.overview.forbidden()
        return {
            gvk.kind: "forbidden" if gvk in forbidden else problem
            for gvk, problem in sorted(self.overview.unavailable().items())
        }


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
        served = await _served(mapper, (view.gvk for view in views))
        related = await _served(mapper, related_kinds(views))
    if scope.cancelled_caught:
        raise NotReadable(f"{transport.config.server} does not answer within {timeout:g} s")
    cache = Cache(transport, mapper, namespaces=None if namespace is None else [namespace])
    overview = Overview(cache, [view for view in views if view.gvk in served], related=related)
    session = Session(overview, tuple(view.gvk for view in views if view.gvk not in served))
    async with anyio.create_task_group() as tasks:
        await tasks.start(cache.run)
        with anyio.move_on_after(timeout):
            await overview.wait_for_sync()
        _check_readable(session, served, namespace, timeout)
        yield session
        tasks.cancel_scope.cancel()


def _check_readable(
    session: Session, served: Collection[GVK], namespace: str | None, timeout: float
) -> None:
    overview = session.overview
    if not served or any(
        informer.has_synced for informer in overview.informers if informer.gvk in served
    ):
        return
    if all(informer.is_forbidden for informer in overview.informers if informer.gvk in served):
        where = (
            f"namespace {namespace}"
            if namespace is not None
            else "all namespaces; try -n NAMESPACE"
        )
        raise NotReadable(f"you are not allowed to list any of the kinds in {where}")
    reasons = "; ".join(sorted(set(overview.unavailable().values())))
    raise NotReadable(f"nothing could be read within {timeout:g} s: {reasons}")


async def _served(mapper: RESTMapper, kinds: Iterable[GVK]) -> list[GVK]:
    found = []
    for gvk in kinds:
        try:
            await mapper.resource(gvk)
        except UnknownKind:
            continue
        found.append(gvk)
    return found
