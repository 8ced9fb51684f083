"""Where the API server is, and with what credentials it is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["ClientConfig", "ConfigError", "load_config"]


class ConfigError(Exception):
    """No usable configuration; the message says what was tried."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """An API server and the credentials for it."""

    server: str
    ca_pem: bytes = b""
    token: Callable[[bool], Awaitable[str]] | str | None = None
    client_cert_pem: bytes = b""
    client_key_pem: bytes = b""
    verify: bool = True
    tls_server_name: str = ""
    proxy_url: str = ""
    namespace: str = "default"
    source: str = ""


async def load_config(kubeconfig: str | None = None, *, context: str | None = None) -> ClientConfig: ...
