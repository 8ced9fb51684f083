"""Who we are to an API server: credentials from a kubeconfig file or a pod's service account.

kubernetes-asyncio knows the file format, exec plugins, OIDC and GCP tokens, and the service account; it
is asked again whenever what it gave has run out. Importing it the ordinary way also imports
its thousand generated API models, which nothing here needs: :func:`_library` imports its ``config`` package
alone (see there).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
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

from cfo.runtime.clock import Clock, SystemClock

__all__ = ["CredentialError", "CredentialSource", "Credentials", "Kubeconfig", "ServiceAccount"]

_log = structlog.get_logger("cfo.client")

_RELOAD_SECONDS = 60.0
_EXPIRY_MARGIN_SECONDS = 60.0
_RENEWAL_LIMIT_SECONDS = 60.0
_RENEWAL_INTERVAL_SECONDS = 5.0
_USER_FILES = ("tokenFile", "client-certificate", "client-key")


# What kubernetes-asyncio raises over broken files, beside its own exception.
_LOADING_ERRORS = (
    *(yaml.YAMLError, OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError),
    *(aiohttp.ClientError, TimeoutError),
)


class CredentialError(Exception):
    """Credentials could not be loaded; the message says why, and holds none of them."""


class Credentials(NamedTuple):
    """What a request is authenticated with: an ``Authorization`` header, a client certificate (PEM), or both."""

    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return f"Credentials(authorization={bool(self.authorization)}, certificate={bool(self.certificate)})"


class CredentialSource(Protocol):
    """Gives the credentials that are valid now."""

    async def __call__(self, *, renew: bool) -> Credentials:
        """The credentials; with ``renew`` new ones, because the server did not accept the last.

        Raises :class:`CredentialError`.
        """
        ...


class _Library(NamedTuple):
    merger: Any
    kubeconfig_loader: Any
    service_account_loader: Any
    error: type[Exception]
    forget_temporary_files: Any


@functools.cache
def _library() -> _Library:
    """kubernetes-asyncio's configuration loaders, without the rest of it.

    Its modules need two names from the generated client, as defaults that we never use. While they are
    imported an empty stand-in for the client is in place; afterwards these modules are ours
    alone and ``import kubernetes_asyncio`` means the whole library again. Should a future version not
    allow that, it is imported whole.
    """
    name = "kubernetes_asyncio"
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise CredentialError("kubernetes-asyncio is not installed")
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    client = ModuleType(f"{name}.client")
    vars(client).update(ApiClient=SimpleNamespace, Configuration=SimpleNamespace)

    def loaded() -> dict[str, ModuleType]:
        return {key: module for key, module in sys.modules.items() if key.partition(".")[0] == name}

    whole = loaded()
    for key in whole:
        del sys.modules[key]
    sys.modules.update({name: package, f"{name}.client": client})
    try:
        kubeconfig: Any = importlib.import_module(f"{name}.config.kube_config")
        incluster = importlib.import_module(f"{name}.config.incluster_config")
    except ImportError:
        kubeconfig = None
    finally:
        for key in loaded():
            del sys.modules[key]
        sys.modules.update(whole)
    if kubeconfig is None:
        kubeconfig = importlib.import_module(f"{name}.config.kube_config")
        incluster = importlib.import_module(f"{name}.config.incluster_config")
    else:
        kubeconfig.OpenIDRequestor = _verifying(kubeconfig.OpenIDRequestor)
    return _Library(
        merger=kubeconfig.KubeConfigMerger,
        kubeconfig_loader=kubeconfig.KubeConfigLoader,
        service_account_loader=incluster.InClusterConfigLoader,
        error=kubeconfig.ConfigException,
        forget_temporary_files=getattr(kubeconfig, "_cleanup_temp_files", lambda: None),
    )


def _verifying(requestor: Any) -> type[Any]:
    class VerifyingOpenIDRequestor(requestor):  # type: ignore[misc]
        """Refreshes OIDC tokens over verified TLS.

        The original skips verification when the kubeconfig names no certificate authority, and the
        request carries the client's secret and the refresh token.
        """

        def _get_connector(self) -> aiohttp.TCPConnector:
            return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self._ssl_ca_cert))

    return VerifyingOpenIDRequestor


class ServiceAccount:
    """The service account of the pod that this process runs in; its token is read anew every minute."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._token_file = directory / "token"
        self._ca_file = directory / "ca.crt"
        self._namespace_file = directory / "namespace"
        self._environ = environ
        self._target = self._load()
        self._token = self._read()

    def _load(self) -> SimpleNamespace:
        target = SimpleNamespace(api_key={})
        library = _library()
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
        """The certificates of the cluster's authority."""
        return self._ca_file.read_bytes()

    @property
    def namespace(self) -> str:
        """The pod's namespace, or the empty string."""
        try:
            return self._namespace_file.read_text().strip()
        except OSError:
            return ""

    async def __call__(self, *, renew: bool) -> Credentials:
        """The token as it is in the file; one that was good stays when the file cannot be read."""
        try:
            if renew:
                self._target = self._load()
            self._token = self._read()
        except (CredentialError, _library().error, OSError) as error:
            _log.warning("the service account's token cannot be read; the last one stays", error=str(error))
        return Credentials(self._token)


class Kubeconfig:
    """The user of one context of one kubeconfig file, or several merged ones.

    Tokens and certificates that stand in files, and those of auth providers, are read anew every
    minute; those of exec plugins shortly before they expire; all of them when the server refuses them.
    ``paths``: files, separated as in ``$KUBECONFIG``. Raises :class:`CredentialError`.
    """

    def __init__(self, paths: str, *, context: str | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = anyio.Lock()
        self._credentials: Credentials | None = None
        self._tried_at = 0.0
        self._reload_at: float | None = None
        self._context_name = context
        library = _library()
        try:
            self._merger = library.merger(paths)
        except _LOADING_ERRORS as error:
            raise CredentialError(f"{paths}: not a kubeconfig file: {_first_line(error)}") from None
        if self._merger.config is None:
            raise CredentialError(f"{paths}: no such file")
        self._paths = os.pathsep.join(self._merger.paths)
        document = self._merger.config.value
        self._context_name = context or document.get("current-context")
        if not self._context_name:
            raise CredentialError(f"{self._paths}: current-context is not set, and no context was asked for")
        self.context, _ = self._entry("contexts", self._context_name, "context")
        self.cluster, _ = self._entry("clusters", self.context.get("cluster") or "", "cluster")
        self.server = str(self.cluster.get("server") or "").rstrip("/")
        if not self.server:
            raise CredentialError(f"{self._paths}: clusters[name={self.context['cluster']}].cluster.server: is missing")
        self.user: dict[str, Any] = {}
        self._user_base = ""
        if self.context.get("user"):
            self.user, self._user_base = self._entry("users", self.context["user"], "user")
        self._resolve_paths()

    def _entry(self, section: str, name: str, key: str) -> tuple[dict[str, Any], str]:
        """An entry by its name, and the folder that its relative paths are relative to."""
        for node in self._merger.config.value[section]:
            entry = node.value
            if not isinstance(entry, dict) or entry.get("name") != name:
                continue
            value = entry.get(key)
            if not isinstance(value, dict):
                raise CredentialError(f"{node.path}: {section}[name={name}].{key}: must be a mapping")
            return value, str(Path(node.path).resolve().parent)
        raise CredentialError(f"{self._paths}: {section}: there is none called {name!r}")

    async def load(self) -> SimpleNamespace:
        """Asks kubernetes-asyncio for everything: runs an exec plugin, refreshes a token, reads the files.

        The result has ``host``, ``ca_pem``, ``verify_ssl``, ``tls_server_name`` and ``proxy``;
        :meth:`__call__` gives the credentials that came with it.
        """
        library = _library()
        self._tried_at = self._clock.monotonic()
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
                raise CredentialError(f"{self._paths}: {self._redacted(_first_line(error))}") from None
            finally:
                library.forget_temporary_files()
        authorization = " ".join(str(target.api_key.get("BearerToken", "")).split())
        if not authorization and "exec" in self.user and not certificate:
            raise CredentialError(f"{self._paths}: the exec plugin gave neither a token nor a certificate")
        self._credentials = Credentials(authorization, certificate, key)
        self._reload_at = self._next_load(getattr(loader, "exec_plugin_expiry", None))
        return target

    def _resolve_paths(self) -> None:
        """Makes relative paths relative to the file that they stand in, as client-go does.

        kubernetes-asyncio takes a user's to be relative to the file of the cluster, and knows none for plugins.
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
        plugin = self.user.get("exec")
        environment = plugin.get("env") if isinstance(plugin, dict) else None
        rest = {key: value for key, value in self.user.items() if key not in {"exec", *_USER_FILES}}
        for secret in _texts([rest, environment]):
            message = message.replace(secret, "***")
        return message

    def _is_due(self, renew: bool) -> bool:
        """Whether to load anew: not too often, for a server that refuses everything must not cost a plugin run each."""
        now = self._clock.monotonic()
        if renew:
            return now - self._tried_at >= _RENEWAL_INTERVAL_SECONDS
        return self._reload_at is not None and now >= self._reload_at

    async def __call__(self, *, renew: bool) -> Credentials:
        """The credentials, loaded anew when they have run out; good ones stay when that fails."""
        seen = self._credentials
        if seen is not None and not self._is_due(renew):
            return seen
        async with self._lock:
            if self._credentials is not None and (self._credentials is not seen or not self._is_due(renew)):
                return self._credentials  # somebody else has just renewed them, or tried to
            try:
                with anyio.fail_after(_RENEWAL_LIMIT_SECONDS):
                    await self.load()
            except (CredentialError, TimeoutError) as error:
                reason = str(error) or f"no answer within {_RENEWAL_LIMIT_SECONDS:.0f} s"
                if renew or seen is None:
                    raise CredentialError(reason) from None
                _log.warning("credentials cannot be renewed; the last ones stay", error=reason)
                self._reload_at = self._clock.monotonic() + _RELOAD_SECONDS
            assert self._credentials is not None
            return self._credentials


def _content(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""


def _texts(value: Any) -> Iterator[str]:
    """The strings in a value that are long enough to be, or to give away, a secret."""
    if isinstance(value, str):
        if len(value) > 3:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _not_after(certificate: bytes) -> datetime | None:
    from cryptography import x509  # loaded only where an exec plugin gives certificates

    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
