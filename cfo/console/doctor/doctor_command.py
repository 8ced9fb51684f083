"""``cfo doctor``: check an installation of the operator."""

from __future__ import annotations

import json

import click

from cfo.console.errors import ClusterUnreadable, echo
from cfo.console.execution import CONTEXT, READ_LIMIT, kubeconfig_option, run_with_client
from cfo.console.namespaces import check_name, require_namespace
from cfo.manifests.names import DEFAULT_NAMESPACE

_TIMEOUT = 20.0


@click.command("doctor")
@click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help=f"Namespace of the operator; by default that of the one with the webhooks, or {DEFAULT_NAMESPACE}.",
)
@click.option(
    "--config",
    "config_name",
    metavar="NAME",
    help="Name of the ConfigMap with the configuration; by default that which the operator's Deployment names.",
)
@kubeconfig_option("by default $KUBECONFIG, then ~/.kube/config, then the pod's service account.")
@CONTEXT
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also exit with 1 if a check warned, or was skipped although it is needed.",
)
def command(
    namespace: str | None,
    config_name: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
    strict: bool,
) -> None:
    """Check an installation of the operator, and print what is wrong and how to fix it.

    Checks the webhooks and their certificate, permissions, KubeRay, Kueue, the domain, versions, the configuration and
    the clock with your own permissions. Nothing is changed; a RayCluster is created as a dry run, which is not stored.
    What you are not allowed to read is skipped; a --namespace that you cannot read at all is an invalid argument.

    Exit codes: 0 if no check failed, also with warnings (--strict: also none), 1 if a check failed, 2 for invalid
    arguments, 3 if the cluster cannot be reached.
    """
    import anyio

    if namespace is not None:
        check_name(namespace, "--namespace")
    from cfo.console.doctor.examination import examine
    from cfo.console.doctor.facts import find_namespace
    from cfo.console.doctor.report import (
        Findings,
        document,
        has_failed,
        has_warned_or_skipped,
        lines,
    )
    from cfo.runtime import CONFIG_MAP, Client, SystemClock, logs

    async def work(client: Client) -> Findings:
        with anyio.move_on_after(_TIMEOUT) as scope:
            await client.mapper.resource(CONFIG_MAP)
            if namespace is not None:
                await require_namespace(client, namespace, "--namespace")
            where = namespace or await find_namespace(client) or DEFAULT_NAMESPACE
        if scope.cancelled_caught:
            raise ClusterUnreadable(
                f"{client.transport.config.server} does not answer within {_TIMEOUT:g} s"
            )
        is_named = namespace is not None
        return await examine(client, where, config_name, SystemClock(), is_named=is_named)

    logs.configure("console", "error")
    findings = run_with_client(
        kubeconfig, "cfo-doctor", work, context=context, reads_only=True, limit=READ_LIMIT
    )
    if output == "json":
        click.echo(json.dumps(document(findings), indent=2))
    else:
        for line in lines(findings):
            echo(line)
    if has_failed(findings) or (strict and has_warned_or_skipped(findings)):
        raise SystemExit(1)
