"""Logins of the client libraries that handlers use themselves, as kopf performs them.

Like :func:`cfo.runtime.client.load_config`, each uses the kubeconfig if there is one, otherwise the service account, so
handlers and the operator use the same cluster.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import anyio
import structlog

from cfo_handlers.errors import LoginError

_log = structlog.get_logger(__name__)

_NO_CONFIGURATION = "neither a kubeconfig nor a service account for the client library"


@dataclass(frozen=True)
class DefaultLogin:
    """Returned by login handlers that leave it to the operator: it uses the kubeconfig or the service account."""


def login_via_client(**_: Any) -> DefaultLogin:
    """Configure the package ``kubernetes``, if it is installed. Raises :class:`LoginError`."""
    try:
        import kubernetes.config
    except ImportError:
        return DefaultLogin()
    try:
        kubernetes.config.load_kube_config()
    except kubernetes.config.ConfigException:
        try:
            kubernetes.config.load_incluster_config()
        except kubernetes.config.ConfigException as error:
            raise LoginError(f"{_NO_CONFIGURATION} kubernetes: {error}") from error
    return DefaultLogin()


async def login_via_async_client(**_: Any) -> DefaultLogin:
    """Configure the package ``kubernetes_asyncio``. Raises :class:`LoginError`."""
    import kubernetes_asyncio.config

    try:
        await kubernetes_asyncio.config.load_kube_config()
    except kubernetes_asyncio.config.ConfigException:
        try:
            kubernetes_asyncio.config.load_incluster_config()  # type: ignore[no-untyped-call]
        except kubernetes_asyncio.config.ConfigException as error:
            raise LoginError(f"{_NO_CONFIGURATION} kubernetes_asyncio: {error}") from error
    return DefaultLogin()


def login_via_pykube(**_: Any) -> DefaultLogin:
    """Use the kubeconfig or the service account, without pykube, which has no configuration of the process."""
    return DefaultLogin()


login_with_kubeconfig = login_via_pykube
login_with_service_account = login_via_pykube


def is_async_client_imported() -> bool:
    """Return whether the program has imported ``kubernetes_asyncio``, which is always installed, but large."""
    return "kubernetes_asyncio" in sys.modules


async def log_in_clients(*, async_client: bool) -> None:
    """Configure ``kubernetes``, if it is installed, and with ``async_client`` also ``kubernetes_asyncio``.

    Errors are logged, because handlers may not need these packages.
    """
    try:
        await anyio.to_thread.run_sync(login_via_client)
    except Exception as error:  # noqa: BLE001 - a library that the operator itself does not use
        _log.warning("Login failed", package="kubernetes", error=str(error))
    if not async_client:
        return
    try:
        await login_via_async_client()
    except Exception as error:  # noqa: BLE001 - likewise
        _log.warning("Login failed", package="kubernetes_asyncio", error=str(error))
