"""``cfo migrate``: show how RayClusters move to another owner, and move them with ``--apply``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import sample
from typing import Final

import click

from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.config.section import ConfigurationError
from cfo.console.counts import counted
from cfo.console.errors import InvalidInput, echo, one_line, remedy_of
from cfo.console.execution import (
    CONTEXT,
    READ_LIMIT,
    YES,
    confirm,
    kubeconfig_option,
    run_with_client,
    time_limit,
    timeout_option,
)
from cfo.console.migrate.raycluster.applying import Executor, StepFailed
from cfo.console.migrate.raycluster.injected import known_settings
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.obstacles import find_operator, obstacles
from cfo.console.migrate.raycluster.planning import (
    ObservedCluster,
    Options,
    is_managed_by_cfo,
    plan_safely,
    plan_takeover,
)
from cfo.console.migrate.raycluster.steps import ObjectPlan, Totals, plan_lines
from cfo.console.migrate.raycluster.targets import GATES, KubeRay, Target
from cfo.console.namespaces import require_namespace
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.runtime import (
    APIError,
    Client,
    DiscoveryIncomplete,
    Forbidden,
    NamespacedName,
    TransportError,
    UnknownKind,
)
from cfo.runtime.process import UnreadableObject
from cfo.version import CONFIG_MAP_NAME

_FIELD_MANAGER: Final = "cfo-migrate"
"""The field manager of all writes of the migration."""

_INCOMPLETE_EXIT_CODE: Final = 3


@click.command("migrate")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--to",
    "target",
    type=click.Choice([str(item) for item in Target]),
    required=True,
    help="Target of the migration.",
)
@click.option("--namespace", "-n", metavar="NAMESPACE", help="Namespace of the RayClusters.")
@click.option("--all-namespaces", "-A", is_flag=True, help="RayClusters of all namespaces.")
@click.option("--apply", is_flag=True, help="Make the changes, one RayCluster after the other.")
@click.option(
    "--allow-downtime",
    is_flag=True,
    help="Restart running RayClusters whose pods have to change.",
)
@click.option(
    "--kuberay-feature",
    "features",
    multiple=True,
    type=click.Choice(list(GATES)),
    help="Field whose feature gate is enabled in KubeRay. Repeatable.",
)
@click.option(
    "--without-tls",
    is_flag=True,
    help="Continue if the target does not provide mutual TLS.",
)
@click.option(
    "--finalizers-only",
    is_flag=True,
    help="Only delete the ClusterRoleBindings and remove the finalizers, without downtime.",
)
@click.option(
    "--operator-namespace",
    metavar="NAMESPACE",
    help="Namespace of the operator's configuration; by default that of the operator with the webhooks, otherwise of "
    f"the only one with a ClusterRoleBinding, or {DEFAULT_NAMESPACE}.",
)
@timeout_option("5m", "Time to wait for the deletion of the pods of each RayCluster.")
@kubeconfig_option("it needs cluster-admin permissions.")
@CONTEXT
@YES
def command(
    names: tuple[str, ...],
    target: str,
    namespace: str | None,
    all_namespaces: bool,
    apply: bool,
    allow_downtime: bool,
    features: tuple[str, ...],
    without_tls: bool,
    finalizers_only: bool,
    operator_namespace: str | None,
    timeout: float,
    kubeconfig: str | None,
    context: str | None,
    yes: bool,
) -> None:
    """Move RayClusters from the Go operator or from this one to KubeRay 1.7, to RHOAI 3, or from Go to here.

    Shows for each RayCluster what will happen, and changes nothing without --apply. With it, refuses to start while an
    operator runs or its webhook for RayClusters is registered, which would revert the changes. Run it again after an
    interruption, or when something is left. --to cfo only shows what this operator itself changes when it starts.

    The exit code is 3 if something is left to do or blocked, or if the cluster cannot be reached, and 1 if the
    migration of a RayCluster failed.
    """
    if bool(namespace) == all_namespaces:
        raise InvalidInput("either --namespace NAMESPACE or --all-namespaces is required")
    if names and all_namespaces:
        raise InvalidInput("names of RayClusters require --namespace")
    is_takeover = target == Target.CFO
    changing = {
        "--apply": apply,
        "--allow-downtime": allow_downtime,
        "--finalizers-only": finalizers_only,
        "--without-tls": without_tls,
        "--kuberay-feature": bool(features),
    }
    excluded = [option for option, is_given in changing.items() if is_given]
    if is_takeover and excluded:
        raise InvalidInput(
            f"{', '.join(excluded)}: not with --to cfo, which only shows what the operator itself changes when it "
            "starts"
        )
    where = namespace or ""

    async def check_namespaces(client: Client) -> str:
        """Return the namespace of the operator."""
        if where:
            await require_namespace(client, where, "--namespace")
        if operator_namespace is None:
            return await find_operator(client)
        await require_namespace(client, operator_namespace, "--operator-namespace")
        return operator_namespace

    async def show_takeover(client: Client) -> int:
        with time_limit(READ_LIMIT):
            namespace_of_operator = await check_namespaces(client)
        return await _show_takeover(client, where, names, namespace_of_operator)

    async def migrate(client: Client) -> int:
        observer = Observer(client)
        kuberay = KubeRay()
        with time_limit(READ_LIMIT):
            namespace_of_operator = await check_namespaces(client)
            keys = await _keys(client, observer, where, names)
            config = await _configuration(
                observer, namespace_of_operator, assumption="the default configuration"
            )
            if target == Target.KUBERAY:
                kuberay = await observer.kuberay(features)
            found = await obstacles(client, namespace_of_operator, where)
        options = Options(
            Target(target),
            kuberay,
            allow_downtime=allow_downtime,
            without_tls=without_tls,
            finalizers_only=finalizers_only,
            settings=known_settings(config or KubeRayConfiguration()),
        )
        _echo_obstacles(found, "before --apply, because they would revert the migration")
        if not apply:
            return await _show(observer, keys, options)
        if found:
            return _INCOMPLETE_EXIT_CODE
        if not yes:
            confirm(
                f"Migrate {counted(len(keys), 'RayCluster')} of {client.transport.config.server}?"
            )
        return await _apply(Executor(client, observer, options, echo, timeout=timeout), keys)

    work = show_takeover if is_takeover else migrate
    try:
        exit_code = run_with_client(kubeconfig, _FIELD_MANAGER, work, context=context)
    except ConfigurationError as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"the operator's configuration: {reason}") from None
    raise SystemExit(exit_code)


async def _configuration(
    observer: Observer, namespace: str, *, assumption: str
) -> KubeRayConfiguration | None:
    """Return the operator's configuration, or ``None`` if ``namespace`` has no operator.

    In the latter case, ``assumption``, with which the plan continues, is printed. Raises :class:`InvalidInput` if the
    user is not allowed to read the configuration.
    """
    try:
        config = await observer.configuration(namespace)
    except Forbidden as error:
        raise InvalidInput(
            f"the configuration of the operator in namespace {namespace} cannot be read: {one_line(error)}"
            f"{remedy_of(error)}"
        ) from None
    if config is None:
        echo(
            f"Note: namespace {namespace} has neither an operator nor its ConfigMap {CONFIG_MAP_NAME}, so the plan "
            f"assumes {assumption}; --operator-namespace selects another namespace",
            err=True,
        )
    return config


async def _keys(
    client: Client, observer: Observer, namespace: str, names: Sequence[str]
) -> list[NamespacedName]:
    """Return the RayClusters called ``names`` in ``namespace``, or all there; an empty one means all namespaces.

    Raises :class:`InvalidInput` if one of the names does not exist.
    """
    if not names:
        return await observer.keys(namespace)
    keys = [NamespacedName(namespace, name) for name in names]
    for key in keys:
        if await client.get(RAY_CLUSTER, key, live=True) is None:
            raise InvalidInput(f"RayCluster {key} does not exist")
    return keys


async def _show(observer: Observer, keys: Iterable[NamespacedName], options: Options) -> int:
    """Print the plans; return the exit code."""
    progress = _Progress()
    for key in keys:
        observed = await _observe(observer, key, progress)
        if observed is not None:
            plan = plan_safely(observed, options)
            _echo_plan(plan)
            progress.totals.add(plan)
    return progress.finish()


class _Progress:
    """What a run has done so far."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.left: list[str] = []
        self.failed = 0

    def add(self, plan: ObjectPlan) -> None:
        self.totals.add(plan)
        if plan.is_incomplete:
            self.left += plan_lines(plan)

    def add_failure(self, key: NamespacedName, error: Exception) -> None:
        self.failed += 1
        echo(f"RayCluster {key}: {' '.join(str(error).split())}", err=True)

    def finish(self) -> int:
        """Print how many RayClusters there are in each state, and how many failed; return the exit code."""
        exit_code = _echo_summary(self.totals)
        if self.failed:
            echo(f"{counted(self.failed, 'RayCluster')} failed", err=True)
            return 1
        return exit_code


async def _observe(
    observer: Observer, key: NamespacedName, progress: _Progress
) -> ObservedCluster | None:
    """Read one RayCluster with its children; return ``None`` if it does not exist, or cannot be read."""
    try:
        with time_limit(READ_LIMIT):
            return await observer.cluster(key)
    except (APIError, UnreadableObject) as error:
        progress.add_failure(key, error)
        return None


async def _apply(executor: Executor, keys: Sequence[NamespacedName]) -> int:
    """Migrate the RayClusters, and print what was done and what is left; return the exit code.

    Those whose pods have to be deleted come last, so that the others wait for none of them.
    """
    progress = _Progress()
    waiting: list[NamespacedName] = []
    for key in keys:
        plan = await _migrate(executor, key, progress, may_wait=False)
        if plan is None:
            continue
        if plan.waits:
            waiting.append(key)
        else:
            progress.add(plan)
    for key in _in_turns(waiting):
        plan = await _migrate(executor, key, progress, may_wait=True)
        if plan is not None:
            progress.add(plan)
    for line in progress.left:
        echo(line)
    return progress.finish()


def _in_turns(keys: Sequence[NamespacedName]) -> list[NamespacedName]:
    """Return one RayCluster of each namespace in random order, then the second one of each, and so on.

    Users choose the names of namespaces, so some could always have the first ones, which end the run if they fail.
    """
    counts: Counter[str] = Counter()
    turns: dict[NamespacedName, int] = {}
    for key in keys:
        turns[key] = counts[key.namespace]
        counts[key.namespace] += 1
    return sorted(sample(keys, len(keys)), key=turns.__getitem__)


async def _migrate(
    executor: Executor, key: NamespacedName, progress: _Progress, *, may_wait: bool
) -> ObjectPlan | None:
    """Migrate one RayCluster; return its last plan, or ``None`` if it does not exist or its migration failed."""
    try:
        return await executor.migrate(key, may_wait=may_wait)
    except (APIError, TransportError, DiscoveryIncomplete, StepFailed, UnreadableObject) as error:
        progress.add_failure(key, error)
        return None


async def _show_takeover(
    client: Client, namespace: str, names: Sequence[str], operator_namespace: str
) -> int:
    """Print what this operator changes when it starts; return the exit code."""
    observer = Observer(client)
    assumption = "that finalizers are needed"
    with time_limit(READ_LIMIT):
        keys = await _keys(client, observer, namespace, names)
        config = await _configuration(observer, operator_namespace, assumption=assumption)
        has_proxies = config is None or await _has_proxies(client, config)
    features = (config or KubeRayConfiguration()).kuberay_features
    progress = _Progress()
    are_managed = True
    for key in keys:
        observed = await _observe(observer, key, progress)
        if observed is not None:
            plan = plan_takeover(observed, has_proxies=has_proxies, active_features=features)
            _echo_plan(plan)
            progress.totals.add(plan)
            are_managed = are_managed and is_managed_by_cfo(observed)
    # A rollback to the Go operator leaves the policies by which RayClusters count as managed.
    with time_limit(READ_LIMIT):
        found = await obstacles(
            client, operator_namespace, namespace, is_takeover=True, has_taken_over=are_managed
        )
    _echo_obstacles(found, "before cfo starts, because both would run")
    return progress.finish()


async def _has_proxies(client: Client, config: KubeRayConfiguration) -> bool:
    """Return whether the operator's configuration and the platform give dashboards a proxy."""
    if not ProfileTable(config).strictest().kuberay.ray_dashboard_oauth_enabled:
        return False
    if config.authentication.enabled:
        return True
    try:
        await client.mapper.resource(ROUTE)
    except UnknownKind:
        return False
    return True


def _echo_obstacles(found: Sequence[str], reason: str) -> None:
    if found:
        echo(f"Stop or remove {reason}:", err=True)
    for obstacle in found:
        echo(f"  {obstacle}", err=True)


def _echo_plan(plan: ObjectPlan) -> None:
    for line in plan_lines(plan):
        echo(line)


def _echo_summary(totals: Totals) -> int:
    """Print how many RayClusters there are in each state; return the exit code."""
    kept = f", {totals.kept} with objects that are kept until another run" if totals.kept else ""
    echo(
        f"{counted(totals.clusters, 'RayCluster')}: {totals.changes} to change, {totals.blocked} blocked, "
        f"{totals.restarts} with downtime{kept}"
    )
    return _INCOMPLETE_EXIT_CODE if totals.is_incomplete else 0
