"""The command ``cfo uninstall``."""

from __future__ import annotations

from typing import Final

import click
from click.core import ParameterSource

from cfo.console.errors import CommandFailed, echo
from cfo.console.execution import (
    CONTEXT,
    READ_LIMIT,
    YES,
    confirm,
    kubeconfig_option,
    run_with_client,
    timeout_option,
)
from cfo.console.namespaces import check_name
from cfo.console.uninstall.installation_check import UninstallRefused, check_installation
from cfo.console.uninstall.notes import notes_on_removal
from cfo.console.uninstall.removal import UninstallIncomplete
from cfo.console.uninstall.steps import uninstall
from cfo.console.uninstall.stored_objects import own_kinds
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.runtime import Client

_REMOVAL_LIMIT: Final = 3600.0
"""Seconds for the removal without what it waits for."""


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
    help="Also delete our CRDs, and with them all AppWrappers and Flux objects of the cluster; not those of "
    "InferenceStacks, which operators of several versions share.",
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
    kept. Changes nothing if the namespace has no operator.

    Exit codes: 1 if something that was asked for was not done, 2 for invalid arguments, 3 if the cluster cannot be
    reached.
    """

    is_named = ctx.get_parameter_source("namespace") is ParameterSource.COMMANDLINE
    check_name(namespace, "--namespace")

    async def check(client: Client) -> tuple[str, str, list[str]]:
        nothing = await check_installation(
            client, namespace, is_named=is_named, leftovers=leftovers, delete_crds=crds
        )
        notes = [] if nothing else await notes_on_removal(client, namespace)
        return nothing, client.transport.config.server, notes

    async def work(client: Client) -> None:
        await uninstall(client, namespace, echo, delete_crds=crds, dry_run=dry_run, timeout=timeout)

    try:
        nothing, server, notes = run_with_client(
            kubeconfig, "cfo-uninstall", check, context=context, limit=READ_LIMIT
        )
        if nothing:
            echo(f"nothing to remove: {nothing}")
            return
        for note in notes:
            echo(f"Note: {note}")
        if not yes and not dry_run:
            what = f"the operator in namespace {namespace}"
            if crds:
                kinds = ", ".join(f"{gvk.kind}s" for gvk in own_kinds())
                what += f", its CRDs and all {kinds} of all namespaces,"
            confirm(f"Remove {what} from {server}?")
        waits = len(own_kinds()) + 1
        limit = _REMOVAL_LIMIT + waits * timeout
        run_with_client(kubeconfig, "cfo-uninstall", work, context=context, limit=limit)
    except (UninstallRefused, UninstallIncomplete) as error:
        raise CommandFailed(str(error)) from None
