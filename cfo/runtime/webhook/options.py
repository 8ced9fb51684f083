"""How webhooks are served: where, under which names, and with whose certificate."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from cfo.runtime.objects import NamespacedName

__all__ = ["CertificateFiles", "RotatedCertificates", "ServiceReference", "WebhookOptions", "WebhookURL"]

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
        """The names that a certificate for it carries: the one that API servers verify."""
        return (f"{self.name}.{self.namespace}.svc",)


@dataclass(frozen=True, slots=True)
class WebhookURL:
    """Where an API server reaches webhooks that run outside of its cluster: ``https://HOST:PORT``."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> WebhookURL:
        """Raises :class:`ValueError`, which says what is allowed, for anything but ``https://HOST[:PORT]``."""
        wrong = (
            f"{text!r}: must be https://HOST:PORT, where HOST is a name or an IP address that the API server reaches"
        )
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError(wrong) from None
        extra = parts.username or parts.password or parts.query or parts.fragment or parts.path not in ("", "/")
        if parts.scheme != "https" or not host or port == 0 or extra:
            raise ValueError(wrong)
        try:
            ip_address(host)
        except ValueError:
            if len(host) > 253 or not _HOST.fullmatch(host):
                raise ValueError(wrong) from None
        return cls(host, 443 if port is None else port)

    @property
    def bind_address(self) -> str:
        """Where to listen for it: on all addresses, or on the loopback interface alone where it leads there."""
        try:
            loopback = ip_address(self.host).is_loopback
        except ValueError:
            loopback = False
        return f"{self._authority if loopback else ''}:{self.port}"

    @property
    def _authority(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"https://{self._authority}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedCertificates:
    """An own authority and a serving certificate, kept in a Secret and renewed in time.

    ``common_name`` and ``organization`` are those of the authority; ``key_algorithm`` is that of new keys (P-256, or
    RSA with 2048 bits, which are slow to make). ``lifetime`` is that of serving certificates; what has a third of its
    life left is renewed. ``overlap``: how long a former authority stays trusted after the new one
    came. ``propagation``: seconds that API servers get to learn of a new authority before a certificate that only it
    vouches for replaces one that is still good.
    """

    secret: NamespacedName
    common_name: str = "webhook-ca"
    organization: str = ""
    key_algorithm: Literal["ecdsa", "rsa"] = "ecdsa"
    authority_lifetime: timedelta = timedelta(days=3650)
    lifetime: timedelta = timedelta(days=365)
    overlap: timedelta = timedelta(hours=1)
    propagation: float = 10.0

    def __post_init__(self) -> None:
        if self.overlap.total_seconds() <= self.propagation:
            raise ValueError(f"overlap: {self.overlap}: must be longer than propagation ({self.propagation:g} s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """A certificate that somebody else (cert-manager, OLM) makes, mounts, renews and announces.

    ``ca`` may be missing; where it is there, and the webhooks are served under a url, it is announced by us.
    """

    directory: Path = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 (controller-runtime's default)
    certificate: str = "tls.crt"
    key: str = "tls.key"
    ca: str = "ca.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """How webhooks are served.

    ``mutating_configuration`` and ``validating_configuration`` are the names of the objects that announce the
    webhooks to the API server, ``definitions`` those of CustomResourceDefinitions whose conversion webhook is ours;
    an empty name: there is none that we know. ``url`` is for webhooks outside of the cluster: the server listens
    there instead of on ``bind_address``, and the configurations point there for as long as it runs.
    ``reuse_port`` lets several processes listen on the same port. ``drain``: seconds that open connections are
    served after no more are accepted.
    """

    service: ServiceReference
    certificates: RotatedCertificates | CertificateFiles = field(default_factory=CertificateFiles)
    mutating_configuration: str = ""
    validating_configuration: str = ""
    definitions: tuple[str, ...] = ()
    bind_address: str = ":9443"
    url: WebhookURL | None = None
    reuse_port: bool = False
    drain: float = 3.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names and addresses that the served certificate must carry."""
        return (*((self.url.host,) if self.url else ()), *self.service.dns_names)
