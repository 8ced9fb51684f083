"""Handlers of the whole operator: startup, cleanup, login and probes."""

from __future__ import annotations

import base64
import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfo.runtime.client import ClientConfig, CredentialError, Credentials, load_config
from cfo_handlers.causes import Cause
from cfo_handlers.client_logins import DefaultLogin, is_async_client_imported, log_in_clients
from cfo_handlers.declarations import Activity
from cfo_handlers.environment import Environment
from cfo_handlers.errors import LoginError
from cfo_handlers.execution import call_handlers
from cfo_handlers.progress import Progress


class ActivityError(Exception):
    """Raised if a handler of the whole operator has failed."""


@dataclass(frozen=True, kw_only=True)
class ConnectionInfo:
    """An API server and credentials, as login handlers return them. Files are read once, ``expiration`` is UTC."""

    server: str
    ca_path: Any = None
    ca_data: str | bytes | None = None
    insecure: bool | None = None
    username: str | None = None
    password: str | None = None
    scheme: str | None = None
    token: str | None = None
    certificate_path: Any = None
    certificate_data: str | bytes | None = None
    private_key_path: Any = None
    private_key_data: str | bytes | None = None
    default_namespace: str | None = None
    proxy_url: str | None = None
    trust_env: bool = False
    priority: int = 0
    expiration: datetime.datetime | None = None

    def credentials(self) -> Credentials:
        """Return the credentials for requests."""
        authorization = ""
        if self.token:
            authorization = f"{self.scheme or 'Bearer'} {self.token}"
        elif self.username is not None and self.password is not None:
            pair = f"{self.username}:{self.password}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        certificate = _read(self.certificate_path, self.certificate_data)
        key = _read(self.private_key_path, self.private_key_data)
        return Credentials(authorization, certificate, key)

    def is_expired(self, now: datetime.datetime) -> bool:
        """Return whether the credentials have expired."""
        expiration = self.expiration
        if expiration is None:
            return False
        if expiration.tzinfo is None:
            expiration = expiration.replace(tzinfo=datetime.UTC)
        return expiration <= now


def _read(path: Any, data: str | bytes | None) -> bytes:
    if path:
        name = path.decode() if isinstance(path, bytes) else path
        return Path(name).read_bytes()
    if not data:
        return b""
    raw = data.encode() if isinstance(data, str) else data
    if raw.lstrip().startswith(b"-----BEGIN"):
        return raw
    return base64.b64decode(raw)


async def run_activity(environment: Environment, activity: Activity) -> dict[str, Any]:
    """Call all handlers of an activity; return their results by identifier.

    Handlers that failed temporarily are called again after their delay, except probes. Raises :class:`ActivityError` if
    one has failed.
    """
    progress = Progress(environment.registry.activities(activity), environment)
    cause = Cause(
        environment, settings=environment.settings, memo=environment.memo, activity=activity
    )
    while True:
        await call_handlers(progress, cause, progress.due())
        if progress.failed:
            raise ActivityError(f"{activity} failed: {', '.join(progress.failed)}")
        delay = progress.delay()
        if delay is None or activity is Activity.PROBE:
            return progress.results
        await environment.clock.sleep(delay)


async def log_in(environment: Environment) -> ClientConfig:
    """Return the configuration of the login handlers, or of the kubeconfig or the service account without any.

    Without login handlers, the client libraries of the program are configured as well. Login handlers are called again
    when their credentials expire or are rejected. Raises :class:`LoginError` if one has failed, or none returned
    credentials, and :class:`~cfo.runtime.ConfigError`.
    """
    has_login_handlers = bool(environment.registry.activities(Activity.LOGIN))
    async_client = is_async_client_imported()  # before our own client, which may import it
    if not has_login_handlers:
        config = await load_config()
        await log_in_clients(async_client=async_client)
        return config
    first = await _call_login_handlers(environment)
    if first is None:
        return await load_config()
    current = first

    async def credentials(*, renew: bool) -> Credentials:
        nonlocal current
        if renew or current.is_expired(environment.now()):
            try:
                current = await _call_login_handlers(environment) or current
            except LoginError as error:
                raise CredentialError(str(error)) from error
        return current.credentials()

    return ClientConfig(
        server=first.server,
        ca_pem=_read(first.ca_path, first.ca_data),
        credentials=credentials,
        verify=not first.insecure,
        proxy_url=first.proxy_url or "",
        namespace=first.default_namespace or "default",
        source="login handlers",
    )


async def _call_login_handlers(environment: Environment) -> ConnectionInfo | None:
    """Return what the login handler of the highest priority returned; ``None`` for a :class:`DefaultLogin`.

    Raises :class:`LoginError` if one has failed or returned something else, and if none returned a login.
    """
    try:
        results = await run_activity(environment, Activity.LOGIN)
    except ActivityError as error:
        raise LoginError(str(error)) from error
    logins = {identity: login for identity, login in results.items() if login is not None}
    if not logins:
        raise LoginError(
            f"login handlers {', '.join(results)}: one must return a ConnectionInfo, or login_via_client(), "
            "login_with_kubeconfig() or another login"
        )
    for identity, login in logins.items():
        if not isinstance(login, ConnectionInfo | DefaultLogin):
            raise LoginError(
                f"login handler {identity}: returned a value of type {type(login).__name__}: "
                "must return a ConnectionInfo or None"
            )
    infos = [login for login in logins.values() if isinstance(login, ConnectionInfo)]
    return max(infos, key=lambda info: info.priority, default=None)
