"""Checks namespaces that users name, so that a mistyped one does not look like an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfo.console.errors import InvalidInput
from cfo.runtime import NAMESPACE, Forbidden, NamespacedName
from cfo.runtime.objects import is_dns_label

if TYPE_CHECKING:
    from cfo.runtime import Client


def check_name(namespace: str, option: str) -> None:
    """Raise :class:`InvalidInput` if the value of ``option`` cannot be the name of a namespace."""
    if not is_dns_label(namespace):
        raise InvalidInput(
            f"{option}: {namespace!r}: must be the name of a namespace (a lower-case DNS label)"
        )


async def has_namespace(client: Client, namespace: str) -> bool:
    """Return whether a namespace exists, as far as the user is allowed to know: what is forbidden can exist."""
    try:
        return await client.get(NAMESPACE, NamespacedName("", namespace), live=True) is not None
    except Forbidden:
        return True


async def require_namespace(client: Client, namespace: str, option: str) -> None:
    """Raise :class:`InvalidInput` if the value of ``option`` is not the name of a namespace that exists."""
    check_name(namespace, option)
    if not await has_namespace(client, namespace):
        raise no_namespace(namespace, option)


def no_namespace(namespace: str, option: str) -> InvalidInput:
    """Return the error for a namespace that does not exist."""
    return InvalidInput(
        f"{option}: namespace {namespace} does not exist; kubectl get namespaces lists all"
    )
