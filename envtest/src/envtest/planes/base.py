"""The interface that the embedded and the real control plane share, and their common implementation.

The public class is :class:`envtest.ControlPlane`, which adds the factories.
"""

from __future__ import annotations

import abc
import base64
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from envtest.apimachinery.objects import Object
from envtest.configuration.arguments import checked_string, checked_token, optional_path
from envtest.formats.manifests import (
    CRD,
    WEBHOOK_CONFIGURATIONS,
    Manifests,
    load_manifests,
    load_webhook_manifests,
    require_sources,
)
from envtest.planes.local_webhooks import LocalWebhooks

__all__ = ["NOT_RUNNING", "AdminAccess", "BaseControlPlane", "InstallError"]

NOT_RUNNING: Final = (
    "the control plane is not running: it runs between start() and stop(), or in a with block"
)


class InstallError(ValueError):
    """Raised when an object cannot be installed; the message names the object and the reason."""


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """How user ``admin`` connects to a running control plane."""

    url: str
    ca_pem: bytes
    token: str


class BaseControlPlane(abc.ABC):
    """A Kubernetes API server that can be started and stopped; an asynchronous context manager does both.

    ``controllers`` names the controllers that run with it.
    """

    controllers: tuple[str, ...]
    _admin: AdminAccess | None = None
    """Set while the control plane runs."""

    @property
    def running_controllers(self) -> Collection[str]:
        """The names of the controllers whose work is done, by them or by others."""
        return self.controllers

    @property
    def admin(self) -> AdminAccess:
        """How to connect as user ``admin`` of group ``system:masters``. Raises RuntimeError if it is not running."""
        if self._admin is None:
            raise RuntimeError(NOT_RUNNING)
        return self._admin

    @property
    def url(self) -> str:
        """The base URL; see :attr:`admin` for the error, also of the next two."""
        return self.admin.url

    @property
    def ca_pem(self) -> bytes:
        """The certificate of the CA."""
        return self.admin.ca_pem

    @property
    def token(self) -> str:
        """The bearer token of user ``admin``."""
        return self.admin.token

    def _require_stopped(self) -> None:
        if self._admin is not None:
            raise RuntimeError("the control plane is already running: stop() it first")

    @abc.abstractmethod
    async def start(self) -> None:
        """Start the control plane; return when it is ready."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stop the control plane and close all connections."""

    @abc.abstractmethod
    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Create or update CRDs and wait until they are established; return their names.

        Raises TypeError, OSError, ValueError; InstallError if the API server rejects a CRD; RuntimeError if it is not
        running.
        """

    async def install_webhooks(
        self, *sources: Manifests, server: LocalWebhooks | Path | str
    ) -> LocalWebhooks:
        """Create or update webhook configurations, and CRDs with conversion webhooks, that call a local server.

        Every service reference is replaced by a URL of ``server``: the return value of an earlier call, or a folder, in
        which a certificate is created for a server on a free port of 127.0.0.1. Other objects of ``sources`` are
        ignored, but a source without any of these is an error, and so is a webhook without a service or URL. Start the
        server, with the certificate and key of the return value, before the next write. Raises the same exceptions as
        :meth:`install_crds`.
        """
        if self._admin is None:
            raise RuntimeError(NOT_RUNNING)
        require_sources(sources)
        found = load_webhook_manifests(sources)
        local = server if isinstance(server, LocalWebhooks) else LocalWebhooks.prepare(server)
        for obj in found:
            if obj["kind"] == CRD:
                await self.install_crds(local.rewrite(obj))
            else:
                await self._install(local.rewrite(obj))
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

    async def kill_program(self, name: str) -> None:
        """End a program of the real control plane as a crash does. Raises TypeError for the embedded one."""
        raise self._no_programs()

    async def stop_program(self, name: str) -> None:
        """End a program of the real control plane. Raises TypeError for the embedded one."""
        raise self._no_programs()

    async def start_program(self, name: str) -> None:
        """Start a program of the real control plane again. Raises TypeError for the embedded one."""
        raise self._no_programs()

    def _no_programs(self) -> TypeError:
        return TypeError(
            "only the real control plane has programs: use ControlPlane.real() (with pytest: --control-plane=real)"
        )

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "a control plane needs `async with`; in synchronous code, use envtest.threaded.ThreadedControlPlane"
        )

    def __exit__(self, *_: object) -> None:
        """Exist, so that ``with`` reaches the error of :meth:`__enter__`; never called."""
        raise AssertionError("__enter__ always raises")

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

        Raises RuntimeError if the control plane is not running; TypeError or ValueError for an argument that is not a
        path, a bearer token or a name, also if it is empty; FileExistsError,
        and writes nothing, if it has content that this method did not write, or the kubeconfig of another control
        plane that is still running; OSError, for example if the folder of ``path`` does not exist.
        """
        from envtest.formats.kubeconfig_file import NAME, write_kubeconfig
        from envtest.formats.yaml_codec import dump

        file = optional_path("path", path)
        bearer = None if token is None else checked_token(token)
        checked_string("user", user)
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
            "users": [{"name": user, "user": {"token": bearer or self.token}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}
            ],
            "current-context": name,
        }
        text = dump(document, sort_keys=False)
        if file is not None:
            write_kubeconfig(file, text)
        return text
