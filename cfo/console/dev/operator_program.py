"""``cfo run --dev``: the operator as a supervised program, on a cluster or on an embedded control plane.

The embedded control plane, the fake KubeRay and all objects live in the supervisor's process, so a restart of the
operator keeps them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

import cfo
from cfo.console.dev.supervisor import Supervisor
from cfo.runtime import Client, ClientConfig, Manager, NamespacedName, RESTMapper, Transport
from cfo.runtime.objects import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION

__all__ = ["new_supervisor", "run_embedded"]

_SOURCE: Final = Path(cfo.__file__).parent


def new_supervisor(
    arguments: Sequence[str], report: Callable[[str], None], environment: Mapping[str, str] | None = None
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
    kubeconfig of the control plane is written to ``kubeconfig``, and removed at the end. Raises
    :class:`cfo.console.demo.run.InvalidDemoInput`.
    """
    from cfo.console.demo import crds, kuberay
    from cfo.console.demo.run import (
        CONTROLLERS,
        InvalidDemoInput,
        apply_objects,
        free_port,
        prepare,
        read_objects,
        take_configuration,
    )
    from cfo.manifests.overlays import crds as own_crds
    from envtest import ControlPlane

    objects = read_objects(manifests)
    document = take_configuration(objects, key)
    async with ControlPlane.embedded(crds=[*crds.load(), *own_crds()], controllers=CONTROLLERS) as plane:
        try:
            written = plane.kubeconfig(kubeconfig)
        except FileExistsError as error:
            raise InvalidDemoInput(f"{error}; choose another path with --kubeconfig") from None
        try:
            target = ClientConfig.for_control_plane(plane)
            async with Transport(target) as transport:
                await prepare(Client(transport, RESTMapper(transport), field_manager="cfo-demo"), key, document)
            report(f"control plane: {target.server}; use it with: export KUBECONFIG={kubeconfig.resolve()}")
            supervisor = new_supervisor(
                [
                    *("--kubeconfig", str(kubeconfig), "--config", key.name),
                    *("--webhook-url", f"https://127.0.0.1:{free_port()}"),
                    *arguments,
                ],
                report,
                {"NAMESPACE": key.namespace},
            )
            manager = Manager(target)
            kuberay.setup(manager)
            async with manager, anyio.create_task_group() as tasks:

                async def supervise() -> None:
                    await supervisor.run(handle_signals=handle_signals)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(supervise)
                await _wait_for_webhooks(manager)
                await apply_objects(manager.api_reader.with_field_manager("cfo-demo"), objects)
        finally:
            if kubeconfig.is_file() and kubeconfig.read_text() == written:  # else another control plane has replaced it
                kubeconfig.unlink(missing_ok=True)


async def _wait_for_webhooks(manager: Manager) -> None:
    """Wait until the operator has registered its webhooks, so that they process all applied objects.

    AppWrappers are accepted only if they were created at least one second later.
    """
    registered = anyio.Event()
    informers = [
        manager.cache.informer(kind) for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
    ]

    def check(_: object) -> None:
        if all(
            any((hook.get("clientConfig") or {}).get("caBundle") for hook in obj.get("webhooks") or ())
            for informer in informers
            for obj in informer.reader.list() or [{}]
        ):
            registered.set()

    for informer in informers:
        informer.add_handler(check)
    await registered.wait()
    await anyio.sleep(1 - manager.clock.now().microsecond / 1_000_000)
