"""Where the API server is, and with what credentials it is asked.

:func:`load_config` looks where kubectl looks: at the kubeconfig file that was named, at ``$KUBECONFIG``, at
``~/.kube/config``, and at last at the service account of the pod that it runs in. The first of these that
exists counts; one that exists and is broken is an error, never passed over.
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

from cfo.runtime.client.credentials import CredentialError, Credentials, CredentialSource, Kubeconfig, ServiceAccount
from cfo.runtime.clock import Clock

__all__ = ["ClientConfig", "ConfigError", "load_config"]

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_IMPERSONATION = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))


class ConfigError(Exception):
    """No usable configuration; the message is one line and says what was tried."""


class ControlPlane(Protocol):
    """A running API server as :mod:`envtest` and similar tools describe it."""

    @property
    def url(self) -> str:
        """The server's URL."""

    @property
    def ca_pem(self) -> bytes:
        """The CA certificates that its certificate is checked against."""

    @property
    def token(self) -> str:
        """The bearer token of an administrator."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """An API server and the credentials for it.

    ``server``: its URL. ``ca_pem``: the authorities that its certificate is checked against (none: those of
    the system); ``verify=False`` checks nothing. ``tls_server_name``: the name to check, where it is not the
    host. ``token``, ``client_cert_pem`` and ``client_key_pem`` are credentials that never change;
    ``credentials`` gives ones that do, and wins. ``headers`` go with every request (impersonation).
    ``namespace``: where an object goes that names none, for programs that want such a default.
    ``source``: where all this was found, for messages.
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
            raise ConfigError(f"proxy-url of {self.server}: only http and https proxies are supported")

    @classmethod
    def for_control_plane(cls, plane: ControlPlane, *, token: str | None = None) -> Self:
        """Connect to a test control plane as its administrator, or with ``token``."""
        return cls(server=plane.url, ca_pem=plane.ca_pem, token=token or plane.token, source="the test control plane")

    @property
    def in_cluster(self) -> bool:
        """Whether these are the credentials of the pod that this process runs in."""
        return isinstance(self.credentials, ServiceAccount)

    async def authenticate(self, *, renew: bool = False) -> Credentials:
        """The credentials that are valid now; with ``renew`` new ones, where there can be any."""
        if self.credentials is not None:
            return await self.credentials(renew=renew)
        authorization = f"Bearer {self.token}" if self.token else ""
        return Credentials(authorization, self.client_cert_pem, self.client_key_pem)

    def ssl_context(self, credentials: Credentials) -> ssl.SSLContext:
        """TLS 1.2 or later, checked as Go's clients check it, with the client certificate if there is one.

        Python's strict X.509 flag stays off: it rejects authorities that Go accepts and that kubeadm and
        others made for years (no key identifiers). A certificate in the bundle is trusted even when it is
        not self-signed, as in Go. Raises :class:`ConfigError`.
        """
        try:
            context = ssl.create_default_context(cadata=self.ca_pem.decode("ascii", "replace") or None)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"certificate authority of {self.server}: {error}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
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
    """The configuration to use, credentials loaded (an exec plugin has run once when this returns).

    ``kubeconfig``: a file that must exist, or several separated as in ``$KUBECONFIG``; ``context``: one of
    its contexts instead of its current one. ``environ`` and ``service_account`` replace the process's
    environment and the folder that a pod finds its token in. Raises :class:`ConfigError`.
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
    raise ConfigError(
        f"no cluster is configured; tried $KUBECONFIG (not set), {home} (no such file) and the "
        "service account of a pod ($KUBERNETES_SERVICE_HOST is not set)"
    )


async def _from_kubeconfig(
    paths: str, origin: str, context: str | None, environ: Mapping[str, str], clock: Clock | None
) -> ClientConfig:
    try:
        source = Kubeconfig(paths, context=context, clock=clock)
        loaded = await source.load()
        return ClientConfig(
            server=source.server,
            ca_pem=loaded.ca_pem,
            credentials=source,
            verify=bool(loaded.verify_ssl),
            tls_server_name=str(loaded.tls_server_name or ""),
            proxy_url=str(loaded.proxy or "") or _proxy_for(source.server, environ),
            headers=_impersonation(source.user),
            namespace=str(source.context.get("namespace") or "default"),
            source=paths,
        )
    except CredentialError as error:
        raise ConfigError(f"{origin}{error}") from None
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


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers for ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra`` of a kubeconfig's user.

    kubernetes-asyncio ignores these; asking without them would ask with other rights than the file says.
    """
    headers = [(header, user[key]) for key, header in _IMPERSONATION if user.get(key)]
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(str(key), safe='')}", value) for value in values]
    return tuple((name, str(value)) for name, value in headers)


def _proxy_for(server: str, environ: Mapping[str, str]) -> str:
    """The proxy that the environment names for ``server``, by Go's rules (``net/http.ProxyFromEnvironment``).

    Loopback addresses never go through one; ``NO_PROXY`` holds names, suffixes, addresses and CIDR blocks
    (OpenShift puts the service network into it).
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
        return ""
    for entry in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").lower().split(","):
        if _exempts(entry.strip(), host, parts.port, address):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _exempts(
    entry: str, host: str, port: int | None, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
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
    name, _, entry_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    if entry_port and entry_port != str(port):
        return False
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")
