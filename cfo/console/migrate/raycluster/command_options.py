"""The options that the commands of ``cfo migrate`` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cfo.console.migrate.raycluster.targets import Target
from cfo.manifests.names import DEFAULT_NAMESPACE

_FEATURES = ("networkPolicy", "tlsOptions")

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _combined(*decorators: _Decorator) -> _Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Path of a kubeconfig with cluster-admin permissions.",
)
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
        type=click.Choice(_FEATURES),
        help="Field whose feature gate is enabled in KubeRay, if it is not in the arguments of its Deployment. "
        "Repeatable.",
    ),
    click.option("--without-tls", is_flag=True, help="Continue if the target does not provide mutual TLS."),
    click.option(
        "--finalizers-only",
        is_flag=True,
        help="Only delete the ClusterRoleBindings and remove the finalizers, without downtime.",
    ),
)
EXECUTION = _combined(
    click.option("--allow-downtime", is_flag=True, help="Restart running RayClusters whose pods have to change."),
    click.option("--dry-run", is_flag=True, help="Let the API server validate each change without persisting it."),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help="Time to wait for the deletion of the pods of each RayCluster.",
    ),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal."),
)
