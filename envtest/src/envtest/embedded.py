"""The embedded control plane: the API server of this package, on the caller's event loop."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from envtest.admission.plugin_names import enabled_plugins
from envtest.assembly import APIServer, Cluster, assemble, create_initial_objects, resume
from envtest.audit import AuditLog
from envtest.auth.authenticator import load_token_file
from envtest.auth.tokens import TokenSettings
from envtest.base import BaseControlPlane, InstallError
from envtest.certificates import SERVER_NAMES, CertificateAuthority, KeyPair, server_context
from envtest.context import User
from envtest.controllers import Runner, create_runner
from envtest.controllers.loopback_client import LoopbackClient
from envtest.errors import StatusError
from envtest.faults import Faults
from envtest.manifests import Manifests, load_crds
from envtest.objects import Object
from envtest.service_network import DEFAULT_SERVICE_NETWORK, parse_service_network
from envtest.storage import Store

if TYPE_CHECKING:
    from envtest.storage.archive import Archive

__all__ = ["EmbeddedServer"]


def _open_archive(folder: Path) -> Archive:
    from envtest.storage.archive import Archive

    return Archive(folder)


class EmbeddedServer(BaseControlPlane):
    """Runs the API server; see :meth:`envtest.ControlPlane.embedded` for the parameters.

    ``store``, ``faults`` and ``audit`` let tests inspect it and inject faults.
    """

    def __init__(
        self,
        *,
        port: int,
        host: str,
        crds: list[Manifests],
        controllers: tuple[str, ...],
        token: str | None,
        token_auth_file: Path | None,
        audit_log: Path | None,
        data_dir: Path | None = None,
        service_cluster_ip_range: str = str(DEFAULT_SERVICE_NETWORK),
    ) -> None:
        self._service_network = parse_service_network(service_cluster_ip_range)
        self._data_dir = data_dir
        self._archive: Archive | None = None
        self._port = port
        self._host = host
        self._crds = crds
        self._controllers = controllers
        self._token_auth_file = token_auth_file
        self._audit_log = audit_log
        self._api_server: APIServer | None = None
        self._authority: CertificateAuthority | None = None
        self._runner: Runner | None = None
        self._token = token

    @property
    def api_server(self) -> APIServer:
        """The parts of the running API server. Raises RuntimeError if it is not running."""
        if self._api_server is None:
            raise RuntimeError("the control plane is not running")
        return self._api_server

    @property
    def store(self) -> Store:
        """The stored objects."""
        return self.api_server.core.store

    @property
    def faults(self) -> Faults:
        """The faults that the server injects."""
        return self.api_server.faults

    @property
    def audit(self) -> AuditLog:
        """The audit log of all requests."""
        return self.api_server.audit

    async def start(self) -> None:
        """Start listening; return when everything is ready. Raises OSError, TokenFileError, ValueError."""
        users: dict[str, User] = load_token_file(self._token_auth_file) if self._token_auth_file else {}
        crds = load_crds(self._crds)
        self._archive = _open_archive(self._data_dir) if self._data_dir else None
        self._authority = self._load_authority()
        self.ca_pem = self._authority.pem
        self.token = self._token or self._setting("token") or secrets.token_urlsafe(32)
        api_server = assemble(
            admin_token=self.token,
            users=users,
            audit_log=self._audit_log,
            plugins=enabled_plugins(disable=() if "serviceaccount" in self._controllers else ("ServiceAccount",)),
            token_settings=TokenSettings(self._archive.get("token-key") if self._archive else None),
            cluster=Cluster(self._service_network),
        )
        self._api_server = api_server
        try:
            if self._archive is not None:
                self._save_settings(self._archive, api_server)
                self._archive.restore(api_server.core.store)
                resume(api_server)
            await create_initial_objects(api_server)
            await self.install_crds(*crds)
            known = (*SERVER_NAMES, str(self._service_network[1]))
            names = (self._host, *(name for name in known if name != self._host))
            context = server_context(self._authority.server(names), self.ca_pem)
            await api_server.server.start(self._host, self._port, context)
            self._runner = create_runner(api_server.core, self._controllers, ca=self.ca_pem)
            self._runner.start()
        except BaseException:
            await self.stop()
            raise
        self.url = f"https://{self._host}:{api_server.server.port}"

    def _setting(self, name: str) -> str:
        value = self._archive.get(name) if self._archive is not None else None
        return value.decode() if value else ""

    def _load_authority(self) -> CertificateAuthority:
        certificate, key = self._setting("ca.crt"), self._setting("ca.key")
        return CertificateAuthority(KeyPair(certificate.encode(), key.encode()) if certificate and key else None)

    def _save_settings(self, archive: Archive, api_server: APIServer) -> None:
        """Save the CA, the admin token and the token key, so that existing kubeconfigs and tokens stay valid."""
        assert self._authority is not None
        pair = self._authority.pair
        archive.put("ca.crt", pair.certificate)
        archive.put("ca.key", pair.key)
        archive.put("token", self.token.encode())
        archive.put("token-key", api_server.core.tokens.private_key())

    async def stop(self) -> None:
        """End all watches and close all connections."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.stop()
        api_server, self._api_server = self._api_server, None
        if api_server is not None:
            api_server.core.store.close_watchers()
            await api_server.server.stop()
            await api_server.webhooks.close()
            api_server.audit.close()
        archive, self._archive = self._archive, None
        if archive is not None:
            archive.close()

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """Issue a certificate and key (PEM) that authenticate as ``user`` in ``groups``."""
        if self._authority is None:
            raise RuntimeError("the control plane is not running")
        return tuple(self._authority.client(user, groups))  # type: ignore[return-value]

    def register_service(self, namespace: str, name: str, url: str, *, port: int = 443) -> None:
        """Call webhooks of the Service ``name`` at the local ``url``, whose certificate must contain its DNS name."""
        self.api_server.endpoints.register(namespace, name, url, port=port)

    def add_user(self, token: str, user: User) -> None:
        """Accept ``token`` as the bearer token of ``user``."""
        self.api_server.authenticator.add_user(token, user)

    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Create or update CRDs; they are established when this returns. Raises InstallError."""
        names: list[str] = []
        for crd in load_crds(sources):
            await self._install({key: value for key, value in crd.items() if key != "status"})
            names.append(crd["metadata"]["name"])
        return names

    def _installer(self) -> LoopbackClient:
        return LoopbackClient(self.api_server.core, "envtest", manager="envtest")

    async def _install(self, obj: Object) -> None:
        try:
            await self._installer().put(obj)
        except StatusError as error:
            raise InstallError(error.message) from error
        except LookupError as error:
            raise InstallError(f"{obj['metadata']['name']}: {error}") from error

    async def _remove(self, obj: Object) -> None:
        try:
            await self._installer().remove(obj)
        except StatusError as error:
            raise InstallError(error.message) from error
