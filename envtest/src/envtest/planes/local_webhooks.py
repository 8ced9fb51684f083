"""Local servers for the webhooks of an operator under test, and webhook configurations that point to them.

Manifests name a Service, which does not exist in a test. As in controller-runtime's envtest, the service reference of
each webhook is replaced by a local URL, with the CA of a certificate created for the test::

    webhooks = await plane.install_webhooks("config/webhook", server=tmp_path)
    serve(webhooks.host, webhooks.port, certfile=webhooks.certificate, keyfile=webhooks.key)
"""

from __future__ import annotations

import copy
import errno
import os
import secrets
import socket
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.configuration.arguments import checked_host, checked_path, checked_port
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.formats.manifests import WEBHOOK_CONFIGURATIONS, webhook_conversion

__all__ = ["LocalWebhooks", "free_port"]


@dataclass(frozen=True, slots=True)
class LocalWebhooks:
    """A local webhook server. ``ca_pem`` is the CA of its certificate, which is in ``directory``."""

    host: str
    port: int
    ca_pem: bytes
    directory: Path

    @classmethod
    def prepare(
        cls, directory: Path | str, *, host: str = "127.0.0.1", port: int = 0
    ) -> LocalWebhooks:
        """Write ``tls.crt``, ``tls.key`` and ``ca.crt`` to ``directory``, which is created if needed.

        The files are readable only by their owner. ``port`` 0 selects a port that is free now. Raises OSError,
        TypeError, ValueError.
        """
        folder = checked_path("server", directory)
        checked_host(host)
        checked_port(port)
        authority = CertificateAuthority(name="envtest-webhooks-ca")
        pair = authority.server([host, "localhost"])
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            ("tls.crt", pair.certificate),
            ("tls.key", pair.key),
            ("ca.crt", authority.pem),
        ):
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        return cls(host, port or free_port(host), authority.pem, folder)

    @property
    def certificate(self) -> Path:
        """The file of the serving certificate (PEM)."""
        return self.directory / "tls.crt"

    @property
    def key(self) -> Path:
        """The file of the certificate's key (PEM)."""
        return self.directory / "tls.key"

    @property
    def url(self) -> str:
        """The base URL of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    def rewrite(self, obj: Object) -> Object:
        """Return a copy of a webhook configuration, or of a CRD with a conversion webhook, that points to this server.

        Other objects are copied unchanged.
        """
        rewritten = copy.deepcopy(obj)
        if obj.get("kind") in WEBHOOK_CONFIGURATIONS:
            for webhook in rewritten.get("webhooks") or ():
                self._set_client_config(webhook.setdefault("clientConfig", {}))
        elif conversion := webhook_conversion(rewritten):
            self._set_client_config(
                conversion.setdefault("webhook", {}).setdefault("clientConfig", {})
            )
        return rewritten

    def _set_client_config(self, config: dict[str, Any]) -> None:
        service = config.pop("service", None)
        if service is not None:
            path = service.get("path") or "/"
            config["url"] = f"{self.url}/{path.lstrip('/')}"
        config["caBundle"] = b64encode(self.ca_pem).decode()


_PORTS_OF_SERVERS: Final = range(20_000, 32_000)
"""Ports that no kernel gives to clients by default: on Linux, these are the ports from 32768."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port of ``host`` that is free now, and that no client gets before a server binds it.

    Raises :class:`OSError` if ``host`` is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = secrets.choice(_PORTS_OF_SERVERS)
        with socket.socket(family) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
