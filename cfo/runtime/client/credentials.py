"""Credentials from a kubeconfig file or a pod's service account.

kubernetes-asyncio implements the file format, exec plugins, OIDC and GCP tokens, and the service account; it is invoked
again whenever the credentials expire. A normal import of it also imports about a thousand generated API models that are
not needed here: :func:`_load_library` imports only its ``config`` package.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

import aiohttp
import anyio
import structlog
import yaml

from cfo.runtime.client.kubeconfig_errors import (
    CredentialError,
    KubeconfigError,
    check_cluster,
    check_user,
    login_problem,
    read_document,
)
from cfo.runtime.process.clock import Clock, SystemClock

__all__ = ["CredentialError", "CredentialSource", "Credentials", "Kubeconfig", "ServiceAccount"]

_log = structlog.get_logger(__name__)

_RELOAD_SECONDS = 60.0
_EXPIRY_MARGIN_SECONDS = 60.0
_RENEWAL_LIMIT_SECONDS = 60.0
_RENEWAL_INTERVAL_SECONDS = 5.0
_ANONYMOUS = "cfo:anonymous"
_USER_FILES = ("tokenFile", "client-certificate", "client-key")

# Exceptions that kubernetes-asyncio raises for invalid files, in addition to its own.
_LOADING_ERRORS = (
    *(yaml.YAMLError, OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError),
    *(aiohttp.ClientError, TimeoutError),
)


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


class _Library(NamedTuple):
    merger: Any
    kubeconfig_loader: Any
    service_account_loader: Any
    error: type[Exception]
    delete_temporary_files: Any


@functools.cache
def _load_library() -> _Library:
    """Import the configuration loaders of kubernetes-asyncio without the rest of the library.

    Its modules need two names from the generated client, as defaults that are never used here. An empty stub replaces
    the client during the import. Afterwards the imported modules are private to this module, and ``import
    kubernetes_asyncio`` imports the whole library again. If a future version makes this impossible, the whole library
    is imported.
    """
    name = "kubernetes_asyncio"
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise CredentialError("kubernetes-asyncio is not installed")
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    client = ModuleType(f"{name}.client")
    vars(client).update(ApiClient=SimpleNamespace, Configuration=SimpleNamespace)

    def library_modules() -> dict[str, ModuleType]:
        return {key: module for key, module in sys.modules.items() if key.partition(".")[0] == name}

    previous = library_modules()
    for key in previous:
        del sys.modules[key]
    sys.modules.update({name: package, f"{name}.client": client})
    try:
        kubeconfig: Any = importlib.import_module(f"{name}.config.kube_config")
        incluster = importlib.import_module(f"{name}.config.incluster_config")
    except ImportError:
        kubeconfig = None
    finally:
        for key in library_modules():
            del sys.modules[key]
        sys.modules.update(previous)
    if kubeconfig is None:
        kubeconfig = importlib.import_module(f"{name}.config.kube_config")
        incluster = importlib.import_module(f"{name}.config.incluster_config")
    else:
        kubeconfig.OpenIDRequestor = _with_tls_verification(kubeconfig.OpenIDRequestor)
        kubeconfig.logger = _silent_logger()
    return _Library(
        merger=kubeconfig.KubeConfigMerger,
        kubeconfig_loader=kubeconfig.KubeConfigLoader,
        service_account_loader=incluster.InClusterConfigLoader,
        error=kubeconfig.ConfigException,
        delete_temporary_files=getattr(kubeconfig, "_cleanup_temp_files", lambda: None),
    )


def _silent_logger() -> logging.Logger:
    """Return a logger for kubernetes-asyncio, which logs each exception before it raises it."""
    # not in the hierarchy of loggers, so that other users of the library in this process keep their logs
    logger = logging.Logger("kubernetes_asyncio")  # noqa: LOG001
    logger.disabled = True
    return logger


def _with_tls_verification(requestor: Any) -> type[Any]:
    class VerifyingOpenIDRequestor(requestor):  # type: ignore[misc]
        """Refreshes OIDC tokens over verified TLS.

        The original skips verification if the kubeconfig contains no CA, although the request contains the client
        secret and the refresh token.
        """

        def _get_connector(self) -> aiohttp.TCPConnector:
            return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self._ssl_ca_cert))

    return VerifyingOpenIDRequestor


class ServiceAccount:
    """The service account of the pod in which this process runs; its token is reread every minute."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._token_file = directory / "token"
        self._ca_file = directory / "ca.crt"
        self._namespace_file = directory / "namespace"
        self._environ = environ
        self._target = self._load()
        self._token = self._read()

    def _load(self) -> SimpleNamespace:
        target = SimpleNamespace(api_key={})
        library = _load_library()
        try:
            library.service_account_loader(
                str(self._token_file), str(self._ca_file), environ=dict(self._environ)
            ).load_and_set(target)
        except (library.error, OSError) as error:
            raise CredentialError(str(error)) from None
        return target

    def _read(self) -> str:
        self._target.refresh_api_key_hook(self._target)
        return str(self._target.api_key["BearerToken"]).strip()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._target.host)

    @property
    def ca_pem(self) -> bytes:
        """The CA certificates of the cluster."""
        return self._ca_file.read_bytes()

    @property
    def namespace(self) -> str:
        """The namespace of the pod, or the empty string."""
        try:
            return self._namespace_file.read_text().strip()
        except OSError:
            return ""

    async def __call__(self, *, renew: bool) -> Credentials:
        """Return the token in the file; if the file cannot be read, the last token remains in use."""
        try:
            if renew:
                self._target = self._load()
            self._token = self._read()
        except (CredentialError, _load_library().error, OSError) as error:
            _log.warning("Failed to read the service account token, using the previous one", error=str(error))
        return Credentials(self._token)


class Kubeconfig:
    """The user of one context of a kubeconfig file, or of several merged files.

    Tokens and certificates from files and auth providers are reloaded every minute, and credentials from exec plugins
    shortly before they expire. All of them are reloaded when the server rejects them. ``paths``: files, separated as in
    ``$KUBECONFIG``. Raises :class:`CredentialError`.
    """

    def __init__(self, paths: str, *, context: str | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = anyio.Lock()
        self._credentials: Credentials | None = None
        self._last_attempt = 0.0
        self._reload_at: float | None = None
        self._context_name = context
        self.user: dict[str, Any] = {}
        self._user_base = ""
        self._merger, self._paths = _read_files(paths)
        document = self._merger.config.value
        self._context_name = context or document.get("current-context")
        if not self._context_name:
            contexts = ", ".join(sorted(str(node.value["name"]) for node in document["contexts"])) or "none"
            raise KubeconfigError(
                f"current-context is not set, and no context was given ({contexts})", file=self._paths
            )
        self._file = self._paths
        self.context, self._file, _ = self._entry("contexts", str(self._context_name), "context")
        self.cluster, self._file, cluster_base = self._entry("clusters", self.context.get("cluster") or "", "cluster")
        cluster_field = f"clusters[name={self.context.get('cluster')}].cluster"
        self.server = str(self.cluster.get("server") or "").rstrip("/")
        if not self.server:
            raise self._located(KubeconfigError("is missing", field=f"{cluster_field}.server"))
        self._user_field = f"users[name={self.context.get('user')}].user"
        try:
            check_cluster(self.cluster, cluster_base, cluster_field)
            if not self.context.get("user"):
                self._add_anonymous_user()
            self.user, self._file, self._user_base = self._entry("users", self.context["user"], "user")
            check_user(self.user, self._user_base, self._user_field)
        except KubeconfigError as error:
            raise self._located(error) from None
        self._resolve_paths()

    def _entry(self, section: str, name: str, key: str) -> tuple[dict[str, Any], str, str]:
        """Return an entry by name, its file, and the directory to which its relative paths are relative."""
        for node in self._merger.config.value[section]:
            entry = node.value
            if entry.get("name") != name:
                continue
            value = entry.get(key)
            if not isinstance(value, dict):
                problem = KubeconfigError("must be a mapping", field=f"{section}[name={name}].{key}")
                raise self._located(problem, node.path)
            return value, node.path, str(Path(node.path).resolve().parent)
        raise self._located(KubeconfigError(f"no entry is named {name!r}", field=section), self._paths)

    def _add_anonymous_user(self) -> None:
        """Give the context a user without credentials, because kubernetes-asyncio requires one for https servers."""
        self.context["user"] = _ANONYMOUS
        config = self._merger.config
        entry = {"name": _ANONYMOUS, "user": dict[str, Any]()}
        config.value["users"].append(type(config)(_ANONYMOUS, entry, config.path))

    def _located(self, error: KubeconfigError, file: str = "") -> KubeconfigError:
        """Return ``error`` with its file and the context, and without secrets."""
        return KubeconfigError(
            self._redacted(error.problem),
            file=error.file or file or self._file,
            context=error.context or str(self._context_name or ""),
            field=error.field,
            hint=error.hint,
        )

    async def load(self) -> SimpleNamespace:
        """Load everything through kubernetes-asyncio: run an exec plugin, refresh a token, read the files.

        The result has ``host``, ``ca_pem``, ``verify_ssl``, ``tls_server_name`` and ``proxy``; :meth:`__call__` returns
        the credentials that were loaded with it.
        """
        library = _load_library()
        self._last_attempt = self._clock.monotonic()
        persist = self._merger.save_changes if "auth-provider" in self.user else None
        target = SimpleNamespace(
            api_key={}, host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True,
            tls_server_name="", proxy="",
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="cfo-") as scratch:
            try:
                loader = library.kubeconfig_loader(
                    config_dict=self._merger.config,
                    config_base_path=None,
                    active_context=self._context_name,
                    config_persister=None if persist is None else lambda _: persist(),
                    temp_file_path=scratch,
                )
                await loader.load_and_set(target)
                target.ca_pem = _content(target.ssl_ca_cert)
                certificate, key = _content(target.cert_file), _content(target.key_file)
            except (*_LOADING_ERRORS, library.error) as error:
                raise self._located(login_problem(self.user, error, self._user_field)) from None
            finally:
                library.delete_temporary_files()
        authorization = " ".join(str(target.api_key.get("BearerToken", "")).split())
        if not authorization and "exec" in self.user and not certificate:
            problem = f"the plugin {self.user['exec']['command']} returned neither a token nor a certificate"
            raise self._located(KubeconfigError(problem, field=f"{self._user_field}.exec"))
        self._credentials = Credentials(authorization, certificate, key)
        self._reload_at = self._next_load(getattr(loader, "exec_plugin_expiry", None))
        return target

    def _resolve_paths(self) -> None:
        """Resolve relative paths against the file that contains them, as client-go does.

        kubernetes-asyncio resolves a user's paths against the file of the cluster, and does not resolve the paths of
        plugins.
        """
        for name in _USER_FILES:
            if self.user.get(name):
                self.user[name] = str(Path(self._user_base) / str(self.user[name]))
        plugin = self.user.get("exec")
        if isinstance(plugin, dict) and "/" in str(plugin.get("command") or ""):
            plugin["command"] = str(Path(self._user_base) / plugin["command"])

    def _next_load(self, expiry: datetime | None) -> float | None:
        now = self._clock.monotonic()
        if "exec" in self.user:
            assert self._credentials is not None
            if expiry is None and self._credentials.certificate:
                expiry = _not_after(self._credentials.certificate)
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
        rest = {key: value for key, value in self.user.items() if key not in {"exec", "auth-provider", *_USER_FILES}}
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
            if self._credentials is not None and (self._credentials is not previous or not self._is_due(renew)):
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


def _read_files(paths: str) -> tuple[Any, str]:
    """Read and merge the files of ``paths`` that exist; return the merger of kubernetes-asyncio, and their paths."""
    found = [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]  # noqa: PTH111 (as the library does)
    for path in found:
        if os.path.exists(path):  # noqa: PTH110
            read_document(path)
    library = _load_library()
    try:
        merger = library.merger(paths)
    except _LOADING_ERRORS as error:
        raise KubeconfigError(f"not a kubeconfig file: {_first_line(error)}", file=paths) from None
    if merger.config is None:
        raise KubeconfigError("no such file", file=paths)
    return merger, os.pathsep.join(merger.paths)


def _content(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""


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


def _not_after(certificate: bytes) -> datetime | None:
    from cryptography import x509  # only needed if an exec plugin returns certificates

    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
