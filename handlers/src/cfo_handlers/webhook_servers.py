"""The values of ``settings.admission.server``, and the options of the webhook server that follow from them.

The server runs in this process and is called at a URL, or through a Service (:class:`WebhookService`, which kopf does
not have). There are no tunnels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from cfo.runtime.objects import NamespacedName
from cfo.runtime.process import free_port
from cfo.runtime.webhook import (
    CertificateFiles,
    RotatedCertificates,
    ServiceReference,
    WebhookOptions,
    WebhookURL,
)
from cfo_handlers.errors import InvalidProgram


class WebhookServer:
    """Webhooks at a URL: ``https://HOST:PORT`` with ``host``, or ``addr``, or the loopback address.

    ``port`` ``None``: a free port. ``certfile``, ``pkeyfile`` and ``cafile`` are a certificate, in one directory;
    without them the certificate is generated and stored in a Secret. Other keywords are accepted and ignored.
    """

    default_host: ClassVar[str] = "127.0.0.1"

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        host: str | None = None,
        certfile: Any = None,
        pkeyfile: Any = None,
        cafile: Any = None,
        **_: Any,
    ) -> None:
        wildcard = addr in (None, "", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
        self.host = host or (str(addr) if not wildcard else self.default_host)
        self.port = port
        self.certfile = certfile
        self.pkeyfile = pkeyfile
        self.cafile = cafile

    def options(self, namespace: str, name: str) -> WebhookOptions:
        """Return the options of the server; ``name``: the webhook configurations and the Secret."""
        certificates: CertificateFiles | None = None
        if self.certfile and self.pkeyfile:
            certificate = Path(self.certfile)
            key = Path(self.pkeyfile)
            if certificate.parent != key.parent:
                raise InvalidProgram(
                    f"settings.admission.server: certfile {certificate}, pkeyfile {key}: "
                    "must be in the same directory"
                )
            ca = Path(self.cafile).name if self.cafile else certificate.name
            certificates = CertificateFiles(
                directory=certificate.parent, certificate=certificate.name, key=key.name, ca=ca
            )
        service = ServiceReference(namespace, name.replace(".", "-"))
        url = WebhookURL(self.host, self.port or free_port())
        return _options(service, name, certificates, url=url)


WebhookAutoServer = WebhookServer
WebhookAutoTunnel = WebhookServer
"""Webhooks at the loopback address, without a tunnel; clusters in virtual machines need the class of their host."""


class WebhookDockerDesktopServer(WebhookServer):
    """Webhooks on the host of Docker Desktop."""

    default_host = "host.docker.internal"


class WebhookK3dServer(WebhookServer):
    """Webhooks on the host of k3d."""

    default_host = "host.k3d.internal"


class WebhookMinikubeServer(WebhookServer):
    """Webhooks on the host of minikube."""

    default_host = "host.minikube.internal"


class WebhookNgrokTunnel(WebhookServer):
    """Not supported: raises :class:`~cfo_handlers.errors.InvalidProgram` when the operator starts."""

    def options(self, namespace: str, name: str) -> WebhookOptions:
        """Raise :class:`~cfo_handlers.errors.InvalidProgram`."""
        raise InvalidProgram(
            "settings.admission.server: tunnels are not supported: "
            "use WebhookServer with a host that the cluster reaches"
        )


class WebhookService(WebhookServer):
    """Webhooks of an operator in the cluster, behind the Service ``name``; it listens on ``port``."""

    def __init__(
        self, name: str, *, namespace: str = "", port: int = 9443, **settings: Any
    ) -> None:
        super().__init__(port=port, **settings)
        self.name = name
        self.namespace = namespace

    def options(self, namespace: str, name: str) -> WebhookOptions:
        """Return the options of the server."""
        service = ServiceReference(self.namespace or namespace, self.name)
        return _options(service, name, bind_address=f":{self.port}")


def _options(
    service: ServiceReference,
    name: str,
    certificates: CertificateFiles | None = None,
    **address: Any,
) -> WebhookOptions:
    secret = NamespacedName(service.namespace, f"{service.name}-cert")
    return WebhookOptions(
        service=service,
        certificates=certificates or RotatedCertificates(secret=secret),
        mutating_configuration=name,
        validating_configuration=name,
        **address,
    )


def webhook_options(server: Any, managed: str | None, namespace: str) -> WebhookOptions:
    """Return the options for ``settings.admission``.

    Raises :class:`~cfo_handlers.errors.InvalidProgram` without a server, for one of another type, and for parameters
    of it that are not valid.
    """
    if server is None:
        raise InvalidProgram(
            "settings.admission.server: is not set, but there are admission handlers: "
            "set it in a startup handler, such as to WebhookServer()"
        )
    if not isinstance(server, WebhookServer):
        raise InvalidProgram(
            f"settings.admission.server: {type(server).__name__}: must be a WebhookServer"
        )
    return server.options(os.environ.get("POD_NAMESPACE") or namespace, managed or "handlers")
