"""Finds namespaces that a configuration names and that do not exist, such as mistyped ones.

A namespace can be created later, so they are warnings. They are no errors of the document either: ``cfo config check``
has no cluster to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import anyio

from cfo.runtime import NAMESPACE, APIError, NamespacedName, TransportError

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration
    from cfo.runtime import Client

_MAX_READ: Final = 500
_PARALLEL: Final = 16


async def missing_namespaces(
    client: Client, configuration: OperatorConfiguration
) -> Mapping[str, Sequence[str]]:
    """Return the namespaces that do not exist, by the setting that names them.

    Only the first 500 are read. A namespace that cannot be read, also because of a missing permission, counts as
    existing.
    """
    named = _named_namespaces(configuration)
    names = dict.fromkeys(chain.from_iterable(named.values()))
    missing: set[str] = set()
    limiter = anyio.CapacityLimiter(_PARALLEL)

    async def read(name: str) -> None:
        async with limiter:
            try:
                found = await client.get(NAMESPACE, NamespacedName("", name), live=True)
            except (APIError, TransportError):
                return
        if found is None:
            missing.add(name)

    async with anyio.create_task_group() as tasks:
        for name in islice(names, _MAX_READ):
            tasks.start_soon(read, name)
    found = {
        setting: [name for name in names if name in missing] for setting, names in named.items()
    }
    return {setting: names for setting, names in found.items() if names}


def _named_namespaces(configuration: OperatorConfiguration) -> dict[str, Sequence[str]]:
    """Return the namespaces without which something of the enabled features does not work, by setting."""
    named: dict[str, Sequence[str]] = {"watchNamespaces": configuration.watch_namespaces}
    kuberay = configuration.kuberay
    if kuberay.enabled:
        named["kuberay.operatorNamespaces"] = kuberay.operator_namespaces
        named["kuberay.ingress.namespaces"] = kuberay.ingress.namespaces
    if configuration.flux.enabled:
        named["flux.adminNamespaces"] = configuration.flux.admin_namespaces
    if configuration.webhook.enabled is not False:
        named["webhook.controllerNamespaces"] = configuration.webhook.controller_namespaces
    return named
