"""Credentials from a kubeconfig file or a pod's service account.

Service accounts, certificates, tokens and passwords are read here. Exec plugins and auth providers, which run programs
or request tokens, are logins of kubernetes-asyncio (:mod:`.kubeconfig_logins`). Its import takes 0.5 s of CPU and
60 MB, so other users do not import it.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import anyio
import msgspec
import structlog
import yaml

from cfo.runtime.client.credential_expiry import (
    is_access_token_valid,
    is_id_token_valid,
    plugin_expiry,
)
from cfo.runtime.client.kubeconfig_errors import (
    CredentialError,
    KubeconfigError,
    read_document,
    read_file,
    read_pem,
    reason,
)
from cfo.runtime.process.clock import Clock, SystemClock

__all__ = ["CredentialError", "CredentialSource", "Credentials", "Kubeconfig", "ServiceAccount"]

_log = structlog.get_logger(__name__)

_RELOAD_SECONDS: Final = 60.0
"""How often files and the token of an auth provider are read again."""

_EXPIRY_MARGIN_SECONDS: Final = 60.0
"""How long before they expire the credentials of an exec plugin are renewed."""

_RENEWAL_LIMIT_SECONDS: Final = 60.0
"""How long a renewal may take."""

_RENEWAL_INTERVAL_SECONDS: Final = 5.0
"""The least time between two renewals because of rejected credentials."""

_USER_FILES: Final = ("tokenFile", "client-certificate", "client-key")
"""The fields of a user that contain paths, not secrets."""

_AUTH_PROVIDERS: Final = frozenset({"gcp", "oidc"})
"""The auth providers that kubernetes-asyncio supports."""

T = TypeVar("T")


class Credentials(NamedTuple):
    """The credentials of a request: an ``Authorization`` header, a client certificate (PEM), or both."""

    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return f"Credentials(authorization={bool(self.authorization)}, certificate={bool(self.certificate)})"


class CredentialSource(Protocol):
    """Returns the current credentials."""

    async def __call__(self, *, renew: bool) -> Credentials:
        """Return the credentials; ``renew`` requests new ones because the server rejected the current ones.

        Raises :class:`CredentialError`.
        """
        ...


class ServiceAccount:
    """The service account of the pod in which this process runs; its token is reread every minute."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._token_file = directory / "token"
        self._namespace_file = directory / "namespace"
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise CredentialError("Service host/port is not set.")
        self.server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        """The URL of the API server."""
        try:
            self._read()
        except FileNotFoundError:
            raise CredentialError("Service token file does not exist.") from None
        try:
            self.ca_pem = (directory / "ca.crt").read_bytes()
            """The CA certificates of the cluster."""
        except FileNotFoundError:
            raise CredentialError("Service certification file does not exist.") from None
        if not self.ca_pem:
            raise CredentialError("Cert file exists but empty.")

    def _read(self) -> None:
        token = self._token_file.read_text().strip()
        if not token:
            raise CredentialError("Token file exists but empty.")
        self._authorization = f"Bearer {token}"
        self._read_at = monotonic()

    @property
    def namespace(self) -> str:
        """The namespace of the pod, or the empty string."""
        try:
            return self._namespace_file.read_text().strip()
        except OSError:
            return ""

    async def __call__(self, *, renew: bool) -> Credentials:
        """Return the token in the file; if the file cannot be read, the last token remains in use."""
        if renew or monotonic() - self._read_at >= _RELOAD_SECONDS:
            try:
                self._read()
            except (CredentialError, OSError) as error:
                _log.warning(
                    "Failed to read the service account token, using the previous one",
                    error=str(error),
                )
        return Credentials(self._authorization)


class _KubeconfigEntry(msgspec.Struct, frozen=True):
    """A context, cluster or user, and the file that contains it."""

    value: dict[str, Any]
    file: str

    @property
    def directory(self) -> str:
        """The directory to which the paths in the entry are relative."""
        return str(Path(self.file).resolve().parent)


class Kubeconfig:
    """The user that one context names in a kubeconfig file, or in several merged files.

    Tokens and certificates from files and auth providers are reloaded every minute, and credentials from exec plugins
    shortly before they expire. All of them are reloaded when the server rejects them. ``paths``: files, separated as in
    ``$KUBECONFIG``. Raises :class:`CredentialError`.
    """

    def __init__(
        self, paths: str, *, context: str | None = None, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = anyio.Lock()
        self._credentials: Credentials | None = None
        self._last_attempt = 0.0
        self._reload_at: float | None = None
        self._program: asyncio.Task[Any] | None = None
        self.user: dict[str, Any] = {}
        self._documents = _read_files(paths)
        self._context_name = context or self._current_context()
        self.context = self._entry("contexts", self._context_name, "context").value

        cluster = self._entry("clusters", self.context.get("cluster") or "", "cluster")
        cluster_field = f"clusters[name={self.context.get('cluster')}].cluster"
        self.cluster = cluster.value
        self.server = str(self.cluster.get("server") or "").rstrip("/")
        if not self.server:
            problem = KubeconfigError("is missing", field=f"{cluster_field}.server")
            raise self._located(problem, cluster.file)
        try:
            self.ca_pem = read_pem(
                self.cluster, "certificate-authority", cluster.directory, cluster_field
            )
        except KubeconfigError as error:
            raise self._located(error, cluster.file) from None

        # Without a user, requests have no credentials.
        user = _KubeconfigEntry({}, cluster.file)
        if self.context.get("user"):
            user = self._entry("users", self.context["user"], "user")
        self.user = user.value
        self._user_file = user.file
        self._user_base = user.directory
        self._user_field = f"users[name={self.context.get('user')}].user"

    def _current_context(self) -> str:
        """Return the current context. As in kubectl, the first file that has one takes precedence."""
        for document in self._documents.values():
            if document.get("current-context"):
                return str(document["current-context"])
        names = sorted({entry["name"] for _, entry in self._entries("contexts")})
        contexts = ", ".join(names) or "none"
        raise KubeconfigError(
            f"current-context is not set, and no context was given ({contexts})",
            file=os.pathsep.join(self._documents),
        )

    def _entries(self, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the entries of all files, each after the path of its file."""
        for path, document in self._documents.items():
            for entry in document.get(section) or ():
                yield path, entry

    def _entry(self, section: str, name: str, key: str) -> _KubeconfigEntry:
        """Return an entry by name. As in kubectl, the first file that has it takes precedence."""
        for path, entry in self._entries(section):
            if entry["name"] != name:
                continue
            value = entry.get(key)
            if not isinstance(value, dict):
                problem = KubeconfigError(
                    "must be a mapping", field=f"{section}[name={name}].{key}"
                )
                raise self._located(problem, path)
            return _KubeconfigEntry(value, path)
        files = os.pathsep.join(self._documents)
        raise self._located(KubeconfigError(f"no entry is named {name!r}", field=section), files)

    def _located(self, error: KubeconfigError, file: str) -> KubeconfigError:
        """Return ``error`` with its file (``file`` if it has none) and the context, and without secrets."""
        return KubeconfigError(
            self._redacted(error.problem),
            file=error.file or file,
            context=error.context or self._context_name,
            field=error.field,
            hint=error.hint,
        )

    async def load(self) -> None:
        """Load the credentials for :meth:`__call__`: run an exec plugin, refresh a token, or read the files."""
        self._last_attempt = self._clock.monotonic()
        try:
            self._credentials, expiry = await self._login()
        except KubeconfigError as error:
            raise self._located(error, self._user_file) from None
        self._reload_at = self._next_reload(expiry)

    async def _login(self) -> tuple[Credentials, datetime | None]:
        """Return the credentials, and when those of an exec plugin expire.

        A client certificate is used in any case; in addition, the first of these that the user has: an auth provider,
        an exec plugin, a token, a password.
        """
        user = self.user
        field = self._user_field
        certificate = read_pem(user, "client-certificate", self._user_base, field)
        key = read_pem(user, "client-key", self._user_base, field)
        provider = user.get("auth-provider")
        if isinstance(provider, dict) and provider.get("name") in _AUTH_PROVIDERS:
            token = await self._provider_token(provider, f"{field}.auth-provider")
            return Credentials(f"Bearer {token}", certificate, key), None
        if "exec" in user:
            return await self._plugin_credentials(certificate, key)
        token = str(user.get("token") or "")
        if not token and user.get("tokenFile"):
            content = read_file(user["tokenFile"], self._user_base, f"{field}.tokenFile")
            token = content.decode(errors="replace")
        if token:
            return Credentials(f"Bearer {token.strip()}", certificate, key), None
        if "username" in user and "password" in user:
            authorization = basic_authorization(user["username"], user["password"])
            return Credentials(authorization, certificate, key), None
        if isinstance(provider, dict) and not certificate:
            raise KubeconfigError(
                f"the auth provider {provider.get('name')!r} is not supported",
                field=f"{field}.auth-provider",
                hint="use an exec plugin, as current versions of kubectl do",
            )
        return Credentials("", certificate, key), None

    async def _plugin_credentials(
        self, certificate: bytes, key: bytes
    ) -> tuple[Credentials, datetime | None]:
        """Run the exec plugin; a certificate that it returns replaces ``certificate`` and ``key`` of the file."""
        await anyio.to_thread.run_sync(_import_logins)
        from cfo.runtime.client.kubeconfig_logins import run_exec_plugin

        plugin = self.user["exec"]
        field = f"{self._user_field}.exec"
        status = await self._run_login(lambda: run_exec_plugin(plugin, self._user_base, field))
        token = str(status.get("token") or "").strip()
        if status.get("clientCertificateData") and status.get("clientKeyData"):
            certificate = str(status["clientCertificateData"]).encode()
            key = str(status["clientKeyData"]).encode()
        if not token and not certificate:
            problem = f"the plugin {plugin['command']} returned neither a token nor a certificate"
            raise KubeconfigError(problem, field=field)
        authorization = f"Bearer {token}" if token else ""
        return Credentials(authorization, certificate, key), plugin_expiry(status, certificate)

    async def _provider_token(self, provider: dict[str, Any], field: str) -> str:
        """Return the token of an auth provider; one that was refreshed is also written to the file."""
        settings = provider.get("config")
        if not isinstance(settings, dict):
            raise KubeconfigError("must be a mapping", field=f"{field}.config")
        if provider["name"] == "gcp":
            refreshed = await self._refresh_google_token(settings, field)
            token = settings["access-token"]
        else:
            refreshed = await self._refresh_oidc_tokens(settings, field)
            token = settings["id-token"]
        if refreshed:
            # The settings, which now have the new token, are a part of this document.
            content = yaml.safe_dump(self._documents[self._user_file])
            try:
                Path(self._user_file).write_text(content, encoding="utf-8")
            except OSError as error:
                raise KubeconfigError(
                    f"cannot write the new token to the file: {error.strerror}", field=field
                ) from None
        return str(token)

    async def _refresh_oidc_tokens(self, settings: dict[str, Any], field: str) -> bool:
        """Refresh the id token in ``settings`` if it expires soon; return whether it was refreshed."""
        if "id-token" in settings:
            try:
                is_valid = is_id_token_valid(str(settings["id-token"]), self._clock.now())
            except ValueError as error:
                raise KubeconfigError(f"the login failed: {reason(error)}", field=field) from None
            if is_valid:
                return False
        ca_pem = read_pem(settings, "idp-certificate-authority", self._user_base, f"{field}.config")
        await anyio.to_thread.run_sync(_import_logins)
        from cfo.runtime.client.kubeconfig_logins import refresh_oidc_tokens

        await refresh_oidc_tokens(settings, ca_pem, field)
        return True

    async def _refresh_google_token(self, settings: dict[str, Any], field: str) -> bool:
        """Refresh the access token in ``settings`` if it expires soon; return whether it was refreshed."""
        expiry = settings.get("expiry")
        is_valid = expiry is None or is_access_token_valid(expiry, self._clock.now())
        if settings.get("access-token") and is_valid:
            return False
        await anyio.to_thread.run_sync(_import_logins)
        from cfo.runtime.client.kubeconfig_logins import refresh_google_token

        await self._run_login(lambda: refresh_google_token(settings, field))
        return True

    async def _run_login(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Start a login that runs a program, and return its result; if one is still running, return that one's.

        A cancelled login does not end its program (see :mod:`.kubeconfig_logins`). Without this, each renewal would
        start one more program that hangs.
        """
        if self._program is None or self._program.cancelled():
            self._program = asyncio.create_task(start())
            self._program.add_done_callback(_retrieve_exception)
        program = self._program
        try:
            result: T = await asyncio.shield(program)
        finally:
            if program.done():
                self._program = None
        return result

    def _next_reload(self, expiry: datetime | None) -> float | None:
        """Return the monotonic time, in seconds, of the next reload; ``None`` if only a rejection causes one.

        ``expiry`` is when the credentials of an exec plugin expire.
        """
        now = self._clock.monotonic()
        if "exec" in self.user:
            if expiry is None:
                return None
            left = (expiry - self._clock.now()).total_seconds()
            # Short-lived credentials are used for half of their life, and a plugin runs at most once a second.
            return now + max(left - _EXPIRY_MARGIN_SECONDS, left / 2, 1.0)
        if any(key in self.user for key in ("auth-provider", "tokenFile", "client-certificate")):
            return now + _RELOAD_SECONDS
        return None

    def _redacted(self, message: str) -> str:
        """Return ``message`` without the secrets of the user: in its fields, the plugin's environment, the provider."""
        values: list[Any] = []
        for field, value in self.user.items():
            if field == "exec" and isinstance(value, dict):
                values.append(value.get("env"))
            elif field == "auth-provider" and isinstance(value, dict):
                values.append(value.get("config"))
            elif field != "exec" and field not in _USER_FILES:
                values.append(value)
        # Longer secrets first: one that is contained in another would leave the rest of that.
        for secret in sorted(_secret_strings(values), key=len, reverse=True):
            message = message.replace(secret, "***")
        return message

    def _is_due(self, renew: bool) -> bool:
        """Return whether to reload. ``renew`` does so at most every :data:`_RENEWAL_INTERVAL_SECONDS`.

        Otherwise an exec plugin would run for each request that the server rejects.
        """
        now = self._clock.monotonic()
        if renew:
            return now - self._last_attempt >= _RENEWAL_INTERVAL_SECONDS
        return self._reload_at is not None and now >= self._reload_at

    async def __call__(self, *, renew: bool) -> Credentials:
        """Return the credentials, reloaded if they have expired; if that fails, the previous ones remain in use."""
        previous = self._credentials
        if previous is not None and not self._is_due(renew):
            return previous
        async with self._lock:
            # While this task waited for the lock, another one may have renewed them, or may have tried to.
            current = self._credentials
            if current is not None and current is not previous:
                return current
            if current is not None and not self._is_due(renew):
                return current
            try:
                with anyio.fail_after(_RENEWAL_LIMIT_SECONDS):
                    await self.load()
            except (CredentialError, TimeoutError) as error:
                problem = str(error) or f"no result within {_RENEWAL_LIMIT_SECONDS:.0f} s"
                if renew or previous is None:
                    raise CredentialError(problem) from None
                _log.warning("Failed to renew credentials, using the previous ones", error=problem)
                self._reload_at = self._clock.monotonic() + _RELOAD_SECONDS
            assert self._credentials is not None
            return self._credentials


def _read_files(paths: str) -> dict[str, dict[str, Any]]:
    """Return the content of the files of ``paths`` that exist, by path."""
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    documents = {str(path): read_document(str(path)) for path in files if path.exists()}
    if not documents:
        raise KubeconfigError("no such file", file=paths)
    return documents


def _secret_strings(value: Any) -> Iterator[str]:
    """Yield the strings in a value that are long enough to contain a secret."""
    if isinstance(value, str):
        if len(value) > 3:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secret_strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_strings(item)


def basic_authorization(user: object, password: object) -> str:
    """Return the header ``Authorization`` for a user name and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _import_logins() -> None:
    """Import the logins of kubernetes-asyncio; called in a thread, because the import takes 0.5 s."""
    import cfo.runtime.client.kubeconfig_logins  # noqa: F401


def _retrieve_exception(program: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a program that no login waits for any more, which asyncio would log otherwise."""
    if not program.cancelled():
        program.exception()
