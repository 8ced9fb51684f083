"""``cfo run --dev``: the operator as a supervised program, on a cluster or on an embedded control plane.

The embedded control plane, the fake KubeRay and all objects live in the supervisor's process, so a restart of the
operator keeps them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

import cfo
from cfo.config.document import parse, single_document
from cfo.config.endpoints import WebhookConfiguration
from cfo.console.dev.supervisor import Supervisor, report
from cfo.console.errors import InvalidInput
from cfo.console.execution import configure_logs, execute, namespace_variable, not_installed
from cfo.runtime import Client, Manager, NamespacedName, Object, SystemClock, wait_for
from cfo.runtime.process import free_port

_SOURCE: Final = Path(cfo.__file__).parent

_CLUSTER_OPTIONS: Final = {
    "config_name": "--config",
    "kubeconfig": "--kubeconfig",
    "webhook_url": "--webhook-url",
    "webhook_cert_dir": "--webhook-cert-dir",
}
"""The options of ``cfo run`` that are passed on to an operator on a cluster."""


def develop(options: Mapping[str, Any]) -> None:
    """Run the operator as a supervised program with the options of ``cfo run``."""
    if options["until_settled"]:
        raise InvalidInput("--until-settled cannot be used with --dev")
    arguments = ["--log-level", options["log_level"]]
    log_format = options["log_format"] or ("console" if options["embedded"] else None)
    if log_format:
        arguments += ["--log-format", log_format]
    if not options["embedded"]:
        if options["manifests"]:
            raise InvalidInput("--apply requires --embedded")
        for name, flag in _CLUSTER_OPTIONS.items():
            if options[name] is not None:
                arguments += [flag, str(options[name])]
        execute(new_supervisor(arguments, report).run)
        return
    if options["webhook_url"] or options["webhook_cert_dir"]:
        raise InvalidInput("--webhook-url and --webhook-cert-dir cannot be used with --embedded")
    try:
        import cfo.console.demo.run  # noqa: F401 (before anything is started)
    except ImportError as error:
        raise not_installed(error) from None
    key = NamespacedName(namespace_variable() or "default", options["config_name"])
    configure_logs(options["log_format"] or "console", "warning")
    execute(
        partial(
            run_embedded,
            arguments,
            key=key,
            kubeconfig=Path(options["kubeconfig"] or "cfo.kubeconfig"),
            manifests=[Path(path) for path in options["manifests"]],
            report=report,
        )
    )


def new_supervisor(
    arguments: Sequence[str],
    report: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
) -> Supervisor:
    """Return a supervisor of ``cfo run`` with ``arguments``, which restarts it when a file of the operator changes."""
    command = [sys.executable, "-m", "cfo", "run", *arguments]
    return Supervisor(command, [_SOURCE], report, environment=environment)


async def run_embedded(
    arguments: Sequence[str],
    *,
    key: NamespacedName,
    kubeconfig: Path,
    manifests: Sequence[Path],
    report: Callable[[str], None],
    handle_signals: bool = True,
) -> None:
    """Run the control plane and the supervised operator until a signal, and apply ``manifests`` once it has started.

    ``arguments`` are options of ``cfo run`` for logs. ``key``: the ConfigMap, in the operator's namespace. The
    kubeconfig of the control plane is written to ``kubeconfig``, and removed at the end. Raises :class:`InvalidInput`.
    """
    from cfo.console.demo import raycluster_nodes, rayjobs
    from cfo.console.demo.run import apply_objects, control_plane, read_objects, take_configuration

    objects = read_objects(manifests)
    document = take_configuration(objects, key)
    webhooks = parse(single_document(document)[1]).configuration.webhook
    async with control_plane(key, document, kubeconfig) as target:
        report(
            f"control plane: {target.server}; use it with: export KUBECONFIG={kubeconfig.resolve()}"
        )
        supervisor = new_supervisor(
            [
                f"--kubeconfig={kubeconfig}",
                f"--config={key.name}",
                f"--webhook-url=https://127.0.0.1:{free_port()}",
                *arguments,
            ],
            report,
            {"NAMESPACE": key.namespace},
        )
        manager = Manager(target)
        raycluster_nodes.setup(manager)
        rayjobs.setup(manager)
        async with manager, anyio.create_task_group() as tasks:

            async def supervise() -> None:
                await supervisor.run(handle_signals=handle_signals)
                tasks.cancel_scope.cancel()

            tasks.start_soon(supervise)
            await _wait_for_webhooks(manager.api_reader, webhooks)
            await apply_objects(manager.api_reader.with_field_manager("cfo-demo"), objects)


async def _wait_for_webhooks(client: Client, configuration: WebhookConfiguration) -> None:
    """Wait until the operator has registered its webhooks, so that they process all applied objects.

    Some objects are accepted only if they were created at least one second later.
    """

    def is_registered(obj: Object | None) -> bool:
        webhooks = (obj or {}).get("webhooks") or ()
        return any((webhook.get("clientConfig") or {}).get("caBundle") for webhook in webhooks)

    for kind, name in configuration.configurations:
        await wait_for(client, kind, NamespacedName("", name), is_registered, timeout=None)
    await anyio.sleep(1 - SystemClock().now().microsecond / 1_000_000)
