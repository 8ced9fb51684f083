"""The interface that the embedded and the real control plane share, and their common implementation.

The public class is :class:`envtest.ControlPlane`, which adds the factories.
"""

from __future__ import annotations

import abc
import base64
from pathlib import Path
from types import TracebackType
from typing import Self

from envtest.apimachinery.objects import Object
from envtest.formats.manifests import (
    CRD,
    WEBHOOK_CONFIGURATIONS,
    Manifests,
    load_manifests,
    load_webhook_manifests,
)
from envtest.planes.local_webhooks import LocalWebhooks, webhook_conversion

__all__ = ["BaseControlPlane", "InstallError", "optional_path"]


def optional_path(value: Path | str | None) -> Path | None:
    """Return the path of an argument; ``None`` if it was not given."""
    return None if value is None else Path(value)


class InstallError(ValueError):
    """Raised when an object cannot be installed; the message names the object and the reason."""


class BaseControlPlane(abc.ABC):
    """A Kubernetes API server that can be started and stopped; an asynchronous context manager does both.

    ``url``, ``ca_pem`` and ``token`` (of user ``admin`` in group ``system:masters``) are set while it runs.
    ``controllers`` names the controllers that run with it.
    """

    controllers: tuple[str, ...]
    url: str
    ca_pem: bytes
    token: str

    @abc.abstractmethod
    async def start(self) -> None:
        """Start the control plane; return when it is ready."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop the control plane and close all connections."""

    @abc.abstractmethod
    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Create or update CRDs and wait until they are established; return their names.

        Raises OSError, ValueError; InstallError if the API server rejects a CRD.
        """

    async def install_webhooks(
        self, *sources: Manifests, server: LocalWebhooks | Path | str
    ) -> LocalWebhooks:
        """Create or update webhook configurations, and CRDs with conversion webhooks, that call a local server.

        Every service reference is replaced by a URL of ``server``: the return value of an earlier call, or a folder, in
        which a certificate is created for a server on a free port of 127.0.0.1. Other objects of ``sources`` are
        ignored, but a source without any of these is an error. Start the server, with the certificate and key of the
        return value, before the next write. Raises the same exceptions as :meth:`install_crds`.
        """
        found = load_webhook_manifests(sources)
        local = server if isinstance(server, LocalWebhooks) else LocalWebhooks.prepare(server)
        for obj in found:
            if obj["kind"] != CRD:
                await self._install(local.rewrite(obj))
            elif webhook_conversion(obj):
                await self.install_crds(local.rewrite(obj))
        return local

    async def remove_webhooks(self, *sources: Manifests) -> None:
        """Delete the webhook configurations of ``sources`` that exist. Raises the same as :meth:`install_crds`."""
        for obj in load_manifests(sources, *WEBHOOK_CONFIGURATIONS):
            await self._remove(obj)

    @abc.abstractmethod
    async def _install(self, obj: Object) -> None:
        """Create an object, or replace the existing object of the same kind and name. Raises InstallError."""

    @abc.abstractmethod
    async def _remove(self, obj: Object) -> None:
        """Delete the object of this kind and name if it exists. Raises InstallError."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def kubeconfig(
        self, path: Path | str | None = None, *, token: str | None = None, user: str = "admin"
    ) -> str:
        """Return a kubeconfig as YAML; also write it to ``path``, readable only by its owner.

        Raises FileExistsError, and writes nothing, if ``path`` has content that this method did not write,
        or the kubeconfig of another control plane that is still running.
        """
        from envtest.formats.kubeconfig_file import NAME, write_kubeconfig
        from envtest.formats.yaml_codec import dump

        name = NAME
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": self.url,
                        "certificate-authority-data": base64.b64encode(self.ca_pem).decode(),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": token or self.token}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}
            ],
            "current-context": name,
        }
        text = dump(document, sort_keys=False)
        if path is not None:
            write_kubeconfig(Path(path), text)
        return text
