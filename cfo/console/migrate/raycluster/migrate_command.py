"""``cfo migrate``: plan, apply and undo the migration of RayClusters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import counted
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.section import ConfigurationError
from cfo.console.errors import CommandFailed, InvalidInput, echo
from cfo.console.execution import YES, confirm, kubeconfig_option, run_with_client, timeout_option
from cfo.console.migrate.raycluster.applying import Outcome
from cfo.console.migrate.raycluster.injected import known_settings
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.planning import Options
from cfo.console.migrate.raycluster.session import FIELD_MANAGER, Session
from cfo.console.migrate.raycluster.steps import Downtime, ObjectPlan, document, table
from cfo.console.migrate.raycluster.targets import GATES, KubeRay, Target
from cfo.console.migrate.raycluster.undoing import InvalidUndoFile, UndoFile, load
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.runtime import Client, NamespacedName, key_of

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _combined(*decorators: _Decorator) -> _Decorator:
    return lambda function: reduce(
        lambda decorated, each: each(decorated), reversed(decorators), function
    )


KUBECONFIG = kubeconfig_option("it needs cluster-admin permissions.")
SCOPE = _combined(
    click.argument("names", metavar="[NAME]...", nargs=-1),
    click.option(
        "--to",
        "target",
        type=click.Choice([str(item) for item in Target]),
        required=True,
        help="Target of the migration.",
    ),
    click.option("--namespace", "-n", metavar="NAMESPACE", help="Namespace of the RayClusters."),
    click.option("--all-namespaces", "-A", is_flag=True, help="RayClusters of all namespaces."),
    KUBECONFIG,
    click.option(
        "--operator-namespace",
        default=DEFAULT_NAMESPACE,
        show_default=True,
        help="Namespace of the operator's configuration.",
    ),
    click.option(
        "--kuberay-feature",
        "features",
        multiple=True,
        type=click.Choice(list(GATES)),
        help="Field whose feature gate is enabled in KubeRay, if it is not in the arguments of its Deployment. "
        "Repeatable.",
    ),
    click.option(
        "--without-tls", is_flag=True, help="Continue if the target does not provide mutual TLS."
    ),
    click.option(
        "--finalizers-only",
        is_flag=True,
        help="Only delete the ClusterRoleBindings and remove the finalizers, without downtime.",
    ),
)
EXECUTION = _combined(
    click.option(
        "--allow-downtime",
        is_flag=True,
        help="Restart running RayClusters whose pods have to change.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Let the API server validate each change without persisting it.",
    ),
    timeout_option(300.0, "Time to wait for the deletion of the pods of each RayCluster."),
    YES,
)

_INCOMPLETE_EXIT_CODE = 3

_T = TypeVar("_T")


@click.group("migrate")
def command() -> None:
    """Move RayClusters from the Go operator or from this one to KubeRay 1.7, to RHOAI 3, or from Go to here.

    The exit code is 3 if something is left to do or blocked, and 1 if the migration of an object failed.
    """


@command.command("plan")
@SCOPE
@click.option(
    "--allow-downtime",
    is_flag=True,
    help="Plan to restart running RayClusters whose pods have to change.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--exit-code",
    is_flag=True,
    help=f"Exit with {_INCOMPLETE_EXIT_CODE} if anything would be done.",
)
def plan_command(output: str, exit_code: bool, **arguments: Any) -> None:
    """Show for each object what it has, what will happen to it, and whether that needs downtime.

    Changes nothing.
    """
    target = _check_scope(arguments)

    async def work(client: Client) -> tuple[list[ObjectPlan], list[str]]:
        observer, session = await _session(client, arguments)
        return await session.plan(), await observer.obstacles(arguments["operator_namespace"])

    plans, obstacles = _run(arguments["kubeconfig"], work)
    if output == "json":
        click.echo(document(plans, str(target), obstacles))
    else:
        for line in table(plans):
            echo(line)
        echo(_summary(plans))
        _echo_obstacles(obstacles, target)
    if exit_code and any(plan.steps or plan.blockers for plan in plans):
        raise SystemExit(_INCOMPLETE_EXIT_CODE)


@command.command("apply")
@SCOPE
@EXECUTION
@click.option(
    "--undo-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the earlier objects; an existing undo file is extended. By default a new file in the current "
    "directory.",
)
def apply_command(
    dry_run: bool, timeout: float, yes: bool, undo_file: Path | None, **arguments: Any
) -> None:
    """Migrate RayClusters. Run it again after an interruption, or when it reports that something is left.

    Refuses to start while an operator runs or its webhook for RayClusters is registered, which would revert it.
    """
    target = _check_scope(arguments)

    async def check(client: Client) -> tuple[list[str], str, str]:
        observer = Observer(client)
        return (
            await observer.obstacles(arguments["operator_namespace"]),
            await observer.identity(),
            client.transport.config.server,
        )

    obstacles, identity, server = _run(arguments["kubeconfig"], check)
    if obstacles:
        _echo_obstacles(obstacles, target)
        raise SystemExit(_INCOMPLETE_EXIT_CODE)
    if target is Target.CFO:
        echo("nothing to apply: the operator makes the planned changes when it starts")
        return
    undo = None if dry_run else _undo_file(undo_file, identity, target)
    if not yes and not dry_run:
        confirm(f"Migrate RayClusters in {arguments['namespace'] or 'all namespaces'} of {server}?")

    async def work(client: Client) -> list[Outcome]:
        _, session = await _session(client, arguments)
        return await session.apply(undo, echo, timeout=timeout, dry_run=dry_run)

    outcomes = _run(arguments["kubeconfig"], work)
    if undo is not None and undo.records:
        echo(f"to undo: cfo migrate undo {undo.path}")
    _finish(outcomes)


@command.command("undo")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@KUBECONFIG
@EXECUTION
@click.option("--force", is_flag=True, help="Also restore what was edited after the migration.")
def undo_command(
    file: Path,
    kubeconfig: str | None,
    allow_downtime: bool,
    dry_run: bool,
    timeout: float,
    yes: bool,
    force: bool,
) -> None:
    """Restore the objects in FILE, which cfo migrate apply wrote. Then start the operator again.

    Only what still is as the migration left it is restored, and only in objects with the same uid.
    """
    undo = _loaded(file)
    options = Options(Target.KUBERAY, allow_downtime=allow_downtime)

    async def check(client: Client) -> str:
        return await Observer(client).identity()

    if _run(kubeconfig, check) != undo.identity:
        raise InvalidInput(f"{file}: was written for another Kubernetes cluster")
    if not yes and not dry_run:
        confirm(f"Restore {len(undo.records)} objects?")

    async def work(client: Client) -> list[Outcome]:
        session = Session(client, Observer(client), options, KubeRayConfiguration())
        return await session.undo(undo, echo, force=force, timeout=timeout, dry_run=dry_run)

    _finish(_run(kubeconfig, work))


async def _session(client: Client, arguments: dict[str, Any]) -> tuple[Observer, Session]:
    """Return an observer and a session for the common arguments of ``plan`` and ``apply``."""
    target, namespace, names = (
        Target(arguments["target"]),
        arguments["namespace"] or "",
        arguments["names"],
    )
    for name in names:
        if await client.get(RAY_CLUSTER, NamespacedName(namespace, name), live=True) is None:
            raise InvalidInput(f"RayCluster {namespace}/{name} does not exist")
    observer = Observer(client, namespace, names)
    config = await observer.configuration(arguments["operator_namespace"])
    options = Options(
        target,
        await observer.kuberay(arguments["features"]) if target is Target.KUBERAY else KubeRay(),
        allow_downtime=arguments["allow_downtime"],
        without_tls=arguments["without_tls"],
        finalizers_only=arguments["finalizers_only"],
        settings=known_settings(config),
    )
    return observer, Session(client, observer, options, config)


def _check_scope(arguments: dict[str, Any]) -> Target:
    """Return the target. Raises :class:`InvalidInput` if the common arguments do not fit together."""
    target = Target(arguments["target"])
    if bool(arguments["namespace"]) == arguments["all_namespaces"]:
        raise InvalidInput("either --namespace NAMESPACE or --all-namespaces is required")
    if arguments["names"] and not arguments["namespace"]:
        raise InvalidInput("names of RayClusters require --namespace")
    if target is Target.CFO and (arguments["finalizers_only"] or arguments["without_tls"]):
        raise InvalidInput("--finalizers-only and --without-tls cannot be used with --to cfo")
    return target


def _run(kubeconfig: str | None, work: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
    try:
        return run_with_client(kubeconfig, FIELD_MANAGER, work)
    except ConfigurationError as error:
        raise InvalidInput(
            f"the operator's configuration: {' '.join(str(error).split())}"
        ) from None
    except OSError as error:
        raise CommandFailed(f"cannot write the undo file: {error}") from None


def _undo_file(path: Path | None, identity: str, target: Target) -> UndoFile:
    if path is None:
        path = Path(f"cfo-migrate-undo-{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z.json")
    if not path.exists():
        return UndoFile(path, identity, str(target))
    found = _loaded(path)
    if (found.identity, found.target) != (identity, str(target)):
        raise InvalidInput(f"{path}: was written for another Kubernetes cluster or target")
    return found


def _loaded(path: Path) -> UndoFile:
    try:
        return load(path)
    except (InvalidUndoFile, OSError) as error:
        raise InvalidInput(" ".join(str(error).split())) from None


def _echo_obstacles(obstacles: Sequence[str], target: Target) -> None:
    if obstacles:
        reason = "both would run" if target is Target.CFO else "it would be reverted"
        echo(f"apply is refused until these are stopped or removed, because {reason}:", err=True)
    for obstacle in obstacles:
        echo(f"  {obstacle}", err=True)


def _summary(plans: Sequence[ObjectPlan]) -> str:
    steps = sum(bool(plan.steps) for plan in plans)
    restarts = sum(plan.downtime is Downtime.RESTART for plan in plans)
    blocked = sum(bool(plan.blockers) for plan in plans)
    return f"{counted(len(plans), 'object')}: {steps} to change, {blocked} blocked, {restarts} with downtime"


def _finish(outcomes: Sequence[Outcome]) -> None:
    """Print what is left, and exit with the code of the worst outcome."""
    for line in table(
        [outcome.plan for outcome in outcomes if outcome.is_incomplete and not outcome.error]
    ):
        echo(line)
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        obj = outcome.plan.object
        echo(f"{obj['kind']} {key_of(obj)}: {outcome.error}", err=True)
    incomplete = sum(outcome.is_incomplete for outcome in outcomes)
    changed = sum(bool(outcome.done) for outcome in outcomes)
    echo(
        f"{counted(len(outcomes), 'object')}: {changed} changed, {incomplete} incomplete, {len(failed)} failed"
    )
    if failed:
        raise SystemExit(1)
    if incomplete:
        raise SystemExit(_INCOMPLETE_EXIT_CODE)
