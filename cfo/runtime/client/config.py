"""Client configuration: the address of the API server and the credentials for it.

:func:`load_config` checks the same sources as kubectl, in this order: the given kubeconfig file, ``$KUBECONFIG``,
``~/.kube/config``, and the service account of the pod in which the process runs. The first source that exists is used;
if it is invalid, loading fails instead of falling back to the next source.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

import anyio

from cfo.runtime.client.credentials import (
    CredentialError,
    Credentials,
    CredentialSource,
    Kubeconfig,
    ServiceAccount,
)
from cfo.runtime.pki.trust import client_context
from cfo.runtime.process.clock import Clock

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOGIN_SECONDS = 300.0
"""The time limit of the first login, in which a user may have to answer in a browser."""
_IMPERSONATION = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))


class ConfigError(Exception):
    """Raised if there is no usable configuration; the message is one line.

    If a kubeconfig is the cause, ``__cause__`` is a :class:`~cfo.runtime.client.kubeconfig_errors.KubeconfigError` with
    its file, context and field.
    """


class NoClusterConfigured(ConfigError):
    """Raised if there is neither a kubeconfig nor a service account; the message lists the checked sources."""


class ControlPlane(Protocol):
    """The connection data of a running API server, as provided by :mod:`envtest` and similar tools."""

    @property
    def url(self) -> str:
        """The URL of the server."""

    @property
    def ca_pem(self) -> bytes:
        """The CA certificates that verify the server certificate."""

    @property
    def token(self) -> str:
        """The bearer token of a cluster administrator."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """An API server and the credentials for it.

    ``server``: the URL. ``ca_pem``: the CA certificates that verify the server certificate (empty: the system's CA
    certificates); ``verify=False`` disables verification. ``tls_server_name``: the name to verify if it differs from
    the host. ``token``, ``client_cert_pem`` and ``client_key_pem`` are static credentials; ``credentials`` returns
    credentials that change, and takes precedence. ``headers`` are sent with every request (impersonation).
    ``namespace``: the default namespace, for programs that need one. ``source``: the source of the configuration, for
    messages.
    """

    server: str
    ca_pem: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    client_cert_pem: bytes = field(default=b"", repr=False)
    client_key_pem: bytes = field(default=b"", repr=False)
    credentials: CredentialSource | None = field(default=None, repr=False)
    verify: bool = True
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    namespace: str = "default"
    source: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.server)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"server {self.server!r}: must be an http or https URL with a host")
        if self.proxy_url and urlsplit(self.proxy_url).scheme not in {"http", "https"}:
            raise ConfigError(
                f"proxy-url of {self.server}: only http and https proxies are supported"
            )

    @classmethod
    def for_control_plane(cls, plane: ControlPlane, *, token: str | None = None) -> Self:
        """Return the configuration for a test control plane, as its administrator or with ``token``."""
        if not hasattr(plane, "url"):
            raise TypeError(
                f"for_control_plane: {plane!r:.200}: must be a control plane, such as ControlPlane.embedded()"
            )
        return cls(
            server=plane.url,
            ca_pem=plane.ca_pem,
            token=token or plane.token,
            source="the test control plane",
        )

    @property
    def in_cluster(self) -> bool:
        """Whether these are the credentials of the pod in which this process runs."""
        return isinstance(self.credentials, ServiceAccount)

    async def authenticate(self, *, renew: bool = False) -> Credentials:
        """Return the current credentials; ``renew`` requests new ones, if the source can renew them."""
        if self.credentials is not None:
            return await self.credentials(renew=renew)
        authorization = f"Bearer {self.token}" if self.token else ""
        return Credentials(authorization, self.client_cert_pem, self.client_key_pem)

    def ssl_context(self, credentials: Credentials) -> ssl.SSLContext:
        """Return a context that verifies the API server, with the client certificate if any.

        Raises :class:`ConfigError`.
        """
        try:
            context = client_context(self.ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"certificate authority of {self.server}: {error}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            with tempfile.TemporaryDirectory(prefix="cfo-") as directory:
                pair = Path(directory) / "client.pem"
                pair.touch(mode=0o600)
                pair.write_bytes(credentials.certificate + b"\n" + credentials.key)
                try:
                    context.load_cert_chain(pair, password=_no_password)
                except (ssl.SSLError, OSError) as error:
                    raise ConfigError(f"client certificate for {self.server}: {error}") from None
        return context


def _no_password() -> str:
    raise OSError("the key is encrypted")


async def load_config(
    kubeconfig: str | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT_DIRECTORY,
    clock: Clock | None = None,
) -> ClientConfig:
    """Load the configuration and the credentials; an exec plugin has run once when this returns.

    ``kubeconfig``: a file that must exist, or several files separated as in ``$KUBECONFIG``; ``context``: the context
    to use instead of the current context. A login may take 5 minutes. ``environ`` and ``service_account`` replace the
    environment of the process and the directory of the pod's service account token. Raises :class:`ConfigError`.
    """
    environ = os.environ if environ is None else environ
    variable = environ.get("KUBECONFIG", "")
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if kubeconfig:
        return await _from_kubeconfig(kubeconfig, "", context, environ, clock)
    if variable:
        return await _from_kubeconfig(variable, "$KUBECONFIG: ", context, environ, clock)
    if home.is_file():
        return await _from_kubeconfig(str(home), "", context, environ, clock)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_service_account(service_account, environ)
    raise NoClusterConfigured(
        f"no cluster is configured; checked $KUBECONFIG (not set), {home} (no such file) and the "
        "service account of the pod ($KUBERNETES_SERVICE_HOST is not set)"
    )


async def _from_kubeconfig(
    paths: str, origin: str, context: str | None, environ: Mapping[str, str], clock: Clock | None
) -> ClientConfig:
    try:
        source = Kubeconfig(paths, context=context, clock=clock)
        with anyio.fail_after(_LOGIN_SECONDS):
            await source.load()
        return ClientConfig(
            server=source.server,
            ca_pem=source.ca_pem,
            credentials=source,
            verify=not source.cluster.get("insecure-skip-tls-verify"),
            tls_server_name=str(source.cluster.get("tls-server-name") or ""),
            proxy_url=str(source.cluster.get("proxy-url") or "")
            or _proxy_for(source.server, environ),
            headers=_impersonation_headers(source.user),
            namespace=str(source.context.get("namespace") or "default"),
            source=paths,
        )
    except CredentialError as error:
        raise ConfigError(f"{origin}{error}") from error
    except TimeoutError:
        problem = f"the login took longer than {_LOGIN_SECONDS:g} s"
        raise ConfigError(f"{origin}{paths}: {problem}") from None
    except ConfigError as error:
        raise ConfigError(f"{origin}{paths}: {error}") from None


def _from_service_account(directory: Path, environ: Mapping[str, str]) -> ClientConfig:
    try:
        source = ServiceAccount(directory, environ)
        return ClientConfig(
            server=source.server,
            ca_pem=source.ca_pem,
            credentials=source,
            proxy_url=_proxy_for(source.server, environ),
            namespace=source.namespace or "default",
            source="the pod's service account",
        )
    except (CredentialError, OSError) as error:
        raise ConfigError(f"service account in {directory}: {error}") from None


def _impersonation_headers(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the headers for ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra`` of a kubeconfig's user.

    Without them, requests would run with different permissions than configured.
    """
    headers = [(header, user[key]) for key, header in _IMPERSONATION if user.get(key)]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(str(key), safe='')}", value) for value in values]
    return tuple((name, str(value)) for name, value in headers)


def _proxy_for(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that the environment sets for ``server``, by Go's rules (``net/http.ProxyFromEnvironment``).

    Loopback addresses never use a proxy. ``NO_PROXY`` lists names, suffixes, addresses and CIDR blocks (OpenShift adds
    the service network).
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").lower()
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    if not proxy or host == "localhost":
        return ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return ""  # a proxy on another host would connect to itself
    for entry in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").lower().split(","):
        if _matches_no_proxy(entry.strip(), host, parts.port, address):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _matches_no_proxy(
    entry: str,
    host: str,
    port: int | None,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None,
) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            pass
    name = entry
    entry_port = ""
    if entry.count(":") == 1:  # more are an IPv6 address
        name, _, entry_port = entry.partition(":")
    if entry_port and entry_port != str(port):
        return False
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")
