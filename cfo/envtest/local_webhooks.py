"""Webhooks of an operator under test: where it serves them, with which certificate, and configurations that say so.

Manifests name a Service, and nothing stands behind it in a test. As controller-runtime's envtest does, the service
reference of each webhook becomes a local url, with the CA of a certificate made for the occasion::

    webhooks = LocalWebhooks.prepare(tmp_path)
    for obj in manifests:
        await client.create(webhooks.rewritten(obj))
    serve(host=webhooks.host, port=webhooks.port, certfile=tmp_path / "tls.crt", keyfile=tmp_path / "tls.key")
"""

from __future__ import annotations

import copy
import os
import socket
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfo.envtest.certificates import Authority
from cfo.runtime.objects import Object

__all__ = ["LocalWebhooks"]

_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class LocalWebhooks:
    """One local webhook server. ``ca_pem`` is the CA of its certificate."""

    host: str
    port: int
    ca_pem: bytes

    @classmethod
    def prepare(cls, directory: Path, *, host: str = "127.0.0.1", port: int = 0) -> LocalWebhooks:
        """Writes ``tls.crt`` and ``tls.key`` (readable by their owner alone) to ``directory``, which is made if needed.

        ``port`` 0 picks one that is free now. Raises OSError.
        """
        authority = Authority(name="cfo-envtest-webhooks-ca")
        pair = authority.server([host, "localhost"])
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
            descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        return cls(host, port or _free_port(host), authority.pem)

    @property
    def url(self) -> str:
        """The base url of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    def rewritten(self, obj: Object) -> Object:
        """A copy of a webhook configuration, or of a CRD with a conversion webhook, that leads to this server.

        Other objects come back as they are.
        """
        rewritten = copy.deepcopy(obj)
        if obj.get("kind") in _CONFIGURATIONS:
            for webhook in rewritten.get("webhooks") or ():
                self._rewrite(webhook.setdefault("clientConfig", {}))
        elif obj.get("kind") == "CustomResourceDefinition":
            conversion = (rewritten.get("spec") or {}).get("conversion") or {}
            if conversion.get("strategy") == "Webhook":
                self._rewrite(conversion.setdefault("webhook", {}).setdefault("clientConfig", {}))
        return rewritten

    def _rewrite(self, config: dict[str, Any]) -> None:
        service = config.pop("service", None)
        if service is not None:
            path = service.get("path") or "/"
            config["url"] = f"{self.url}/{path.lstrip('/')}"
        config["caBundle"] = b64encode(self.ca_pem).decode()


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
