"""Credentials from a kubeconfig file or a pod's service account.

They are read here instead of by kubernetes-asyncio, whose import takes 0.3 s and 35 MiB, because it includes about a
thousand generated API models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

import anyio
import structlog
import yaml

from cfo.runtime.client.kubeconfig_errors import (
    CredentialError,
    KubeconfigError,
    read_document,
    read_file,
    read_pem,
)
from cfo.runtime.client.kubeconfig_logins import basic_authorization, oidc_token, run_exec_plugin
from cfo.runtime.process.clock import Clock, SystemClock

__all__ = ["CredentialError", "CredentialSource", "Credentials", "Kubeconfig", "ServiceAccount"]

_log = structlog.get_logger(__name__)

_RELOAD_SECONDS = 60.0
_EXPIRY_MARGIN_SECONDS = 60.0
_RENEWAL_LIMIT_SECONDS = 60.0
_RENEWAL_INTERVAL_SECONDS = 5.0
_PEM_FILES = ("client-certificate", "client-key")
_USER_FILES = ("tokenFile", *_PEM_FILES)


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
        host, port = (
            environ.get("KUBERNETES_SERVICE_HOST", ""),
            environ.get("KUBERNETES_SERVICE_PORT", ""),
        )
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
        self.user: dict[str, Any] = {}
        self._user_base = ""
        self._documents = _read_files(paths)
        self._file = os.pathsep.join(self._documents)
        # As in kubectl, the first file that has a value or an entry takes precedence.
        current = (document.get("current-context") for document in self._documents.values())
        self._context_name = str(context or next(filter(None, current), ""))
        if not self._context_name:
            contexts = (
                ", ".join(sorted({entry["name"] for _, entry in self._entries("contexts")}))
                or "none"
            )
            raise KubeconfigError(
                f"current-context is not set, and no context was given ({contexts})",
                file=self._file,
            )
        self.context, self._file, _ = self._entry("contexts", self._context_name, "context")
        self.cluster, self._file, base = self._entry(
            "clusters", self.context.get("cluster") or "", "cluster"
        )
        cluster_field = f"clusters[name={self.context.get('cluster')}].cluster"
        self.server = str(self.cluster.get("server") or "").rstrip("/")
        if not self.server:
            raise self._located(KubeconfigError("is missing", field=f"{cluster_field}.server"))
        self._user_field = f"users[name={self.context.get('user')}].user"
        try:
            self.ca_pem = read_pem(self.cluster, "certificate-authority", base, cluster_field)
            if self.context.get("user"):
                self.user, self._file, self._user_base = self._entry(
                    "users", self.context["user"], "user"
                )
        except KubeconfigError as error:
            raise self._located(error) from None

    def _entries(self, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the entries of all files with their files."""
        for path, document in self._documents.items():
            for entry in document.get(section) or ():
                yield path, entry

    def _entry(self, section: str, name: str, key: str) -> tuple[dict[str, Any], str, str]:
        """Return an entry by name, its file, and the directory to which its relative paths are relative."""
        for path, entry in self._entries(section):
            if entry["name"] != name:
                continue
            value = entry.get(key)
            if not isinstance(value, dict):
                problem = KubeconfigError(
                    "must be a mapping", field=f"{section}[name={name}].{key}"
                )
                raise self._located(problem, path)
            return value, path, str(Path(path).resolve().parent)
        files = os.pathsep.join(self._documents)
        raise self._located(KubeconfigError(f"no entry is named {name!r}", field=section), files)

    def _located(self, error: KubeconfigError, file: str = "") -> KubeconfigError:
        """Return ``error`` with its file and the context, and without secrets."""
        return KubeconfigError(
            self._redacted(error.problem),
            file=error.file or file or self._file,
            context=error.context or self._context_name,
            field=error.field,
            hint=error.hint,
        )

    async def load(self) -> None:
        """Load the credentials: run an exec plugin, refresh a token, read the files; :meth:`__call__` returns them."""
        self._last_attempt = self._clock.monotonic()
        try:
            self._credentials, expiry = await self._login()
        except KubeconfigError as error:
            raise self._located(error) from None
        self._reload_at = self._next_load(expiry)

    async def _login(self) -> tuple[Credentials, datetime | None]:
        """Return the credentials, and when those of an exec plugin expire."""
        user, field = self.user, self._user_field
        certificate, key = (read_pem(user, name, self._user_base, field) for name in _PEM_FILES)
        provider = user.get("auth-provider")
        if isinstance(provider, dict) and provider.get("name") == "oidc":
            token = await self._oidc_token(provider, f"{field}.auth-provider")
            return Credentials(f"Bearer {token}", certificate, key), None
        if "exec" in user:
            status = await run_exec_plugin(user["exec"], self._user_base, f"{field}.exec")
            token = str(status.get("token") or "").strip()
            if status.get("clientCertificateData") and status.get("clientKeyData"):
                certificate = str(status["clientCertificateData"]).encode()
                key = str(status["clientKeyData"]).encode()
            if not token and not certificate:
                problem = f"the plugin {user['exec']['command']} returned neither a token nor a certificate"
                raise KubeconfigError(problem, field=f"{field}.exec")
            return Credentials(f"Bearer {token}" if token else "", certificate, key), _expiry(
                status, certificate
            )
        token = str(user.get("token") or "")
        if not token and user.get("tokenFile"):
            token = read_file(user["tokenFile"], self._user_base, f"{field}.tokenFile").decode(
                errors="replace"
            )
        if token:
            return Credentials(f"Bearer {token.strip()}", certificate, key), None
        if "username" in user and "password" in user:
            return Credentials(
                basic_authorization(user["username"], user["password"]), certificate, key
            ), None
        if isinstance(provider, dict) and not certificate:
            raise KubeconfigError(
                f"the auth provider {provider.get('name')!r} is not supported",
                field=f"{field}.auth-provider",
                hint="use an exec plugin, as current versions of kubectl do",
            )
        return Credentials("", certificate, key), None

    async def _oidc_token(self, provider: dict[str, Any], field: str) -> str:
        """Return the token of an auth provider; one that was refreshed is also written to the file."""
        if not isinstance(settings := provider.get("config"), dict):
            raise KubeconfigError("must be a mapping", field=f"{field}.config")
        before = dict(settings)
        token = await oidc_token(settings, self._user_base, field)
        if settings != before:
            try:
                Path(self._file).write_text(
                    yaml.safe_dump(self._documents[self._file]), encoding="utf-8"
                )
            except OSError as error:
                raise KubeconfigError(
                    f"cannot write the new token to the file: {error.strerror}", field=field
                ) from None
        return token

    def _next_load(self, expiry: datetime | None) -> float | None:
        now = self._clock.monotonic()
        if "exec" in self.user:
            if expiry is None:
                return None
            left = (expiry.replace(tzinfo=expiry.tzinfo or UTC) - self._clock.now()).total_seconds()
            return now + max(left - _EXPIRY_MARGIN_SECONDS, left / 2, 1.0)
        if any(key in self.user for key in ("auth-provider", "tokenFile", "client-certificate")):
            return now + _RELOAD_SECONDS
        return None

    def _redacted(self, message: str) -> str:
        plugin, provider = self.user.get("exec"), self.user.get("auth-provider")
        environment = plugin.get("env") if isinstance(plugin, dict) else None
        settings = provider.get("config") if isinstance(provider, dict) else provider
        rest = {
            key: value
            for key, value in self.user.items()
            if key not in {"exec", "auth-provider", *_USER_FILES}
        }
        for secret in _secret_strings([rest, environment, settings]):
            message = message.replace(secret, "***")
        return message

    def _is_due(self, renew: bool) -> bool:
        """Return whether to reload; rate-limited, so that the plugin does not run once per rejection."""
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
            if self._credentials is not None and (
                self._credentials is not previous or not self._is_due(renew)
            ):
                return self._credentials  # another task has just renewed them or has tried to
            try:
                with anyio.fail_after(_RENEWAL_LIMIT_SECONDS):
                    await self.load()
            except (CredentialError, TimeoutError) as error:
                reason = str(error) or f"no result within {_RENEWAL_LIMIT_SECONDS:.0f} s"
                if renew or previous is None:
                    raise CredentialError(reason) from None
                _log.warning("Failed to renew credentials, using the previous ones", error=reason)
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


def _expiry(status: Mapping[str, Any], certificate: bytes) -> datetime | None:
    """Return when the credentials of an exec plugin expire, ``None`` if that is unknown."""
    try:
        if status.get("expirationTimestamp"):
            return datetime.fromisoformat(str(status["expirationTimestamp"]))
        if certificate:
            from cryptography import x509  # only needed if an exec plugin returns certificates

            return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        pass
    return None
