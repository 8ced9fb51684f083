"""Options of the webhook server: its address, the names in its certificate, and the source of the certificate."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cfo.runtime.objects.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from cfo.runtime.pki.policy import CertificatePolicy
from cfo.runtime.process.arguments import require_type
from cfo.runtime.process.strings import require_strings

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service through which the API server reaches the webhooks."""

    namespace: str
    name: str
    port: int = 443

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The DNS names that the Service's certificate must contain; API servers verify this name."""
        return (f"{self.name}.{self.namespace}.svc",)


@dataclass(frozen=True, slots=True)
class WebhookURL:
    """The address at which an API server reaches webhooks that run outside its cluster: ``https://HOST:PORT``."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> WebhookURL:
        """Parse ``https://HOST[:PORT]``; the default port is 443.

        Raises :class:`ValueError` with the string and the expected format if ``text`` is malformed.
        """
        message = (
            f"{text!r}: must be https://HOST:PORT, where HOST is a name or IP address "
            "that the API server can reach, and PORT is 1 to 65535"
        )
        try:
            parts = urlsplit(text)
            host = parts.hostname or ""
            port = parts.port
        except ValueError:
            raise ValueError(message) from None
        if parts.scheme != "https" or not host or port == 0:
            raise ValueError(message)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(message)
        if parts.path not in ("", "/"):
            raise ValueError(message)
        try:
            ip_address(host)
        except ValueError:
            if len(host) > 253 or not _HOST.fullmatch(host):
                raise ValueError(message) from None
        if port is None:
            port = 443
        return cls(host, port)

    @property
    def bind_address(self) -> str:
        """The address to listen on: all interfaces, or only the loopback interface if the host is a loopback IP."""
        try:
            is_loopback = ip_address(self.host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            return f":{self.port}"
        return f"{self._url_host}:{self.port}"

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"https://{self._url_host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedCertificates(CertificatePolicy):
    """A self-managed CA and serving certificate, stored in ``secret`` and renewed before they expire.

    ``propagation`` is the time in seconds that API servers have to load a changed CA bundle, before a certificate of a
    new CA replaces a serving certificate that is still valid. ``overlap`` must be longer.
    """

    secret: NamespacedName
    propagation: float = 10.0

    def __post_init__(self) -> None:
        if self.overlap.total_seconds() <= self.propagation:
            raise ValueError(
                f"overlap: {self.overlap}: must be longer than propagation ({self.propagation:g} s)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """A serving certificate in files that another tool (cert-manager, OLM) issues and renews.

    ``certificate``, ``key`` and ``ca`` are the names of PEM files in ``directory``. A changed pair is loaded while the
    server runs. Normally the other tool injects its CA into the webhook configurations. If the webhooks are served at a
    URL, we inject the CA bundle in the file ``ca``; without this optional file the bundles stay unchanged.

    Raises :class:`TypeError` for a ``directory`` that is no :class:`~pathlib.Path`.
    """

    directory: Path = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 (controller-runtime's default)
    certificate: str = "tls.crt"
    key: str = "tls.key"
    ca: str = "ca.crt"

    def __post_init__(self) -> None:
        require_type("directory", self.directory, Path, "a Path, such as Path('/certs')")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """Options of the webhook server.

    ``mutating_configuration`` and ``validating_configuration`` are the names of the webhook configurations that we
    manage; empty if we manage none. With a ``url`` and one of both, a webhook that needs the other is never ready.
    ``url`` is for webhooks outside the cluster: the server listens on its port instead of on ``bind_address``, and the
    webhook configurations contain the URL while the server runs. ``reuse_port`` lets several replicas on one machine
    listen on the same port; a process does not start if the port is used by one whose certificate has another CA.
    ``client_ca`` is a PEM file with CAs: connections without a client certificate of one of them are refused in the TLS
    handshake; the file is reloaded when it changes. ``drain`` is how long, in seconds, open connections are served
    after the server stopped accepting new ones; at most 0.2 s for a ``url`` without ``reuse_port``.

    ``lease`` is the Lease that this operator renews, for its leader election or as a heartbeat. It is written into the
    webhook configurations, so that another operator does not use them while this one is alive (:mod:`.ownership`);
    without it, no other operator is looked for. With ``is_only``, and without leader election, controllers start once
    this process holds it, and the manager fails if another process renews it; ready pods of another operator's Service
    count as alive. ``expired`` contains the ``renewTime`` of
    Leases that are known not to be renewed anymore. ``controller_namespaces`` are those of controllers that write our
    objects, besides that of ``service``: they can also write an object that a user has filled to its limits
    (:mod:`.review`).

    Raises :class:`TypeError` for a value of another type.
    """

    service: ServiceReference
    certificates: RotatedCertificates | CertificateFiles = field(default_factory=CertificateFiles)
    mutating_configuration: str = ""
    validating_configuration: str = ""
    bind_address: str = ":9443"
    url: WebhookURL | None = None
    reuse_port: bool = False
    client_ca: Path | None = None
    drain: float = 3.0
    lease: NamespacedName | None = None
    is_only: bool = False
    expired: Mapping[NamespacedName, str] = field(default_factory=dict)
    controller_namespaces: Collection[str] = ("kube-system",)

    def __post_init__(self) -> None:
        require_type("service", self.service, ServiceReference, "ServiceReference(namespace, name)")
        require_type(
            "certificates",
            self.certificates,
            RotatedCertificates | CertificateFiles,
            "RotatedCertificates(secret=...) or CertificateFiles(directory=...)",
        )
        require_type(
            "url", self.url, WebhookURL | None, "WebhookURL.parse('https://HOST:PORT'), or None"
        )
        for name in ("mutating_configuration", "validating_configuration", "bind_address"):
            require_type(name, getattr(self, name), str, "a string")
        require_strings("controller_namespaces", self.controller_namespaces)

    @property
    def address(self) -> WebhookURL | ServiceReference:
        """The address at which API servers call the webhooks."""
        return self.url or self.service

    @property
    def configurations(self) -> dict[GVK, str]:
        """The names of the webhook configurations that we manage, by kind."""
        names = {
            MUTATING_WEBHOOK_CONFIGURATION: self.mutating_configuration,
            VALIDATING_WEBHOOK_CONFIGURATION: self.validating_configuration,
        }
        return {gvk: name for gvk, name in names.items() if name}

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names and IP addresses that the serving certificate must contain."""
        if self.url is None:
            return self.service.dns_names
        return (self.url.host, *self.service.dns_names)
