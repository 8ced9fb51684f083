"""A control plane to develop and test against: embedded (this process) or real, behind one interface.

``async with ControlPlane.embedded() as plane`` serves the Kubernetes API on 127.0.0.1 until the block ends;
``ControlPlane.real()`` starts etcd and kube-apiserver from ``$KUBEBUILDER_ASSETS``; ``ControlPlane.auto()`` takes the
real one when that variable is set. Tests need not know which one they have.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from envtest.manifests import CRD, WEBHOOK_CONFIGURATIONS, read_manifests
from envtest.objects import Object

if TYPE_CHECKING:
    from envtest.embedded import EmbeddedControlPlane
    from envtest.local_webhooks import LocalWebhooks
    from envtest.real import RealControlPlane

__all__ = ["ControlPlane", "InstallError", "Manifests"]

Manifests = Path | str | Mapping[str, Any]
"""An object, a YAML or JSON file, or a folder of those."""


class InstallError(ValueError):
    """An object could not be installed; the message names it and says why."""


class ControlPlane(abc.ABC):
    """What all control planes offer.

    ``url``, ``ca_pem`` and ``token`` (of user ``admin`` in ``system:masters``) are set while it runs.
    """

    url: str
    ca_pem: bytes
    token: str

    @staticmethod
    def embedded(
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        crds: Iterable[Manifests] = (),
        controllers: Sequence[str] = ("gc", "namespace", "serviceaccount"),
        token: str | None = None,
        token_auth_file: Path | None = None,
        audit_log: Path | None = None,
        data_dir: Path | None = None,
    ) -> EmbeddedControlPlane:
        """A control plane in this process and event loop.

        ``port`` 0 takes a free one. ``controllers`` are the small controllers to run with it. ``token`` is the admin's
        (a random one by default), ``token_auth_file`` names more users in kube-apiserver's CSV format. ``data_dir`` is
        where objects, CA and tokens outlive the process; without it they go with it.
        """
        from envtest.embedded import EmbeddedControlPlane

        return EmbeddedControlPlane(
            port=port,
            host=host,
            crds=list(crds),
            controllers=tuple(controllers),
            token=token,
            token_auth_file=token_auth_file,
            audit_log=audit_log,
            data_dir=data_dir,
        )

    @staticmethod
    def real(*, crds: Iterable[Manifests] = (), assets: Path | None = None) -> RealControlPlane:
        """etcd and kube-apiserver from ``assets``, by default ``$KUBEBUILDER_ASSETS``."""
        from envtest.real import RealControlPlane

        return RealControlPlane(crds=list(crds), assets=assets)

    @staticmethod
    def auto(*, crds: Iterable[Manifests] = ()) -> ControlPlane:
        """The real control plane where ``$KUBEBUILDER_ASSETS`` is set, else the embedded one."""
        if os.environ.get("KUBEBUILDER_ASSETS"):
            return ControlPlane.real(crds=crds)
        return ControlPlane.embedded(crds=crds)

    @abc.abstractmethod
    async def start(self) -> None:
        """Starts it; returns when it is ready."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Stops it; all connections are closed."""

    @abc.abstractmethod
    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Creates or updates CRDs and waits until they are established; returns their names.

        Raises OSError, ValueError; InstallError where the API server refuses one.
        """

    async def install_webhooks(self, *sources: Manifests, server: LocalWebhooks | Path | str) -> LocalWebhooks:
        """Creates or updates webhook configurations, and CRDs with conversion webhooks, to be served from here.

        Every service reference becomes a url of ``server``: what an earlier call returned, or a folder, where a
        certificate is made for a server on a free port of 127.0.0.1. Other objects of ``sources`` are passed over.
        Start serving what is returned, with its certificate and key, before the next write. Raises as
        :meth:`install_crds`.
        """
        from envtest.local_webhooks import LocalWebhooks, conversion_of

        found = list(load_manifests(sources, *WEBHOOK_CONFIGURATIONS, CRD))
        local = server if isinstance(server, LocalWebhooks) else LocalWebhooks.prepare(Path(server))
        for obj in found:
            if obj["kind"] != CRD:
                await self._install(local.rewritten(obj))
            elif conversion_of(obj):
                await self.install_crds(local.rewritten(obj))
        return local

    async def remove_webhooks(self, *sources: Manifests) -> None:
        """Deletes the webhook configurations of ``sources``, where they exist. Raises as :meth:`install_crds`."""
        for obj in load_manifests(sources, *WEBHOOK_CONFIGURATIONS):
            await self._remove(obj)

    @abc.abstractmethod
    async def _install(self, obj: Object) -> None:
        """Creates an object, or replaces the one of its name. Raises InstallError."""

    @abc.abstractmethod
    async def _remove(self, obj: Object) -> None:
        """Deletes the object of this kind and name, if there is one. Raises InstallError."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def kubeconfig(self, path: Path | str | None = None, *, token: str | None = None, user: str = "admin") -> str:
        """A kubeconfig as YAML; also written to ``path``, readable by its owner alone."""
        import base64

        from envtest.yaml_codec import dump

        name = "envtest"
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
            "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
            "current-context": name,
        }
        text = dump(document, sort_keys=False)
        if path is not None:
            file = Path(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                out.write(text)
            file.chmod(0o600)
        return text


def load_manifests(sources: Iterable[Manifests], *kinds: str) -> Iterator[Object]:
    """The objects of ``kinds`` among those that ``sources`` name. Raises ValueError, OSError."""
    for source in sources:
        objects = [dict(source)] if isinstance(source, Mapping) else read_manifests(Path(source), objects_only=True)
        for obj in objects:
            if obj.get("kind") not in kinds:
                continue
            metadata = obj.get("metadata")
            if not isinstance(metadata, Mapping) or not metadata.get("name"):
                where = "" if isinstance(source, Mapping) else f"{source}: "
                raise ValueError(f"{where}{obj['kind']}: metadata.name is missing")
            yield obj


def load_crds(sources: Iterable[Manifests]) -> list[Object]:
    """The CRDs among the objects that ``sources`` name. Raises ValueError, OSError."""
    return list(load_manifests(sources, CRD))
