"""The embedded control plane: the API server of this package, on the caller's event loop."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from envtest.assembly import Machine, assemble, boot, resume
from envtest.audit import AuditLog
from envtest.auth.authenticator import load_token_file
from envtest.certificates import Authority, KeyPair, server_context
from envtest.context import User
from envtest.controllers import Runner, make_runner
from envtest.controllers.loopback_client import LoopbackClient
from envtest.errors import StatusError
from envtest.faults import Faults
from envtest.objects import Object
from envtest.plane import ControlPlane, InstallError, Manifests, load_crds
from envtest.storage import Store

if TYPE_CHECKING:
    from envtest.storage.archive import Archive

__all__ = ["EmbeddedControlPlane"]

_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.0.0.1",
    "::1",
)


def _open_archive(folder: Path) -> Archive:
    from envtest.storage.archive import Archive

    return Archive(folder)


class EmbeddedControlPlane(ControlPlane):
    """See :meth:`ControlPlane.embedded`. ``store``, ``faults`` and ``audit`` are for tests that look inside."""

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
    ) -> None:
        self._data_dir = data_dir
        self._archive: Archive | None = None
        self._port = port
        self._host = host
        self._crds = crds
        self._controllers = controllers
        self._token_auth_file = token_auth_file
        self._audit_log = audit_log
        self._machine: Machine | None = None
        self._authority: Authority | None = None
        self._runner: Runner | None = None
        self._token = token

    @property
    def machine(self) -> Machine:
        """The parts; only while it runs."""
        if self._machine is None:
            raise RuntimeError("the control plane is not running")
        return self._machine

    @property
    def store(self) -> Store:
        """What is stored."""
        return self.machine.core.store

    @property
    def faults(self) -> Faults:
        """What is to go wrong."""
        return self.machine.faults

    @property
    def audit(self) -> AuditLog:
        """What was asked."""
        return self.machine.audit

    async def start(self) -> None:
        """Listens, and returns when everything is in place. Raises OSError, TokenFileError, ValueError."""
        users: dict[str, User] = load_token_file(self._token_auth_file) if self._token_auth_file else {}
        crds = load_crds(self._crds)
        self._archive = _open_archive(self._data_dir) if self._data_dir else None
        self._authority = self._load_authority()
        self.ca_pem = self._authority.pem
        self.token = self._token or self._kept("token") or secrets.token_urlsafe(32)
        machine = assemble(
            admin_token=self.token,
            users=users,
            audit_log=self._audit_log,
            service_accounts="serviceaccount" in self._controllers,
            token_key=self._archive.get("token-key") if self._archive else None,
        )
        self._machine = machine
        try:
            if self._archive is not None:
                self._keep(self._archive, machine)
                self._archive.restore(machine.core.store)
                resume(machine)
            await boot(machine)
            await self.install_crds(*crds)
            names = (self._host, *(name for name in ("127.0.0.1", *_NAMES) if name != self._host))
            context = server_context(self._authority.server(names), self.ca_pem)
            await machine.server.start(self._host, self._port, context)
            self._runner = make_runner(machine.core, self._controllers, ca=self.ca_pem)
            self._runner.start()
        except BaseException:
            await self.stop()
            raise
        self.url = f"https://{self._host}:{machine.server.port}"

    def _kept(self, name: str) -> str:
        value = self._archive.get(name) if self._archive is not None else None
        return value.decode() if value else ""

    def _load_authority(self) -> Authority:
        certificate, key = self._kept("ca.crt"), self._kept("ca.key")
        return Authority(KeyPair(certificate.encode(), key.encode()) if certificate and key else None)

    def _keep(self, archive: Archive, machine: Machine) -> None:
        """Keeps what kubeconfigs and tokens of before need to be good for."""
        assert self._authority is not None
        pair = self._authority.pair
        archive.put("ca.crt", pair.certificate)
        archive.put("ca.key", pair.key)
        archive.put("token", self.token.encode())
        archive.put("token-key", machine.core.tokens.private_key())

    async def stop(self) -> None:
        """Ends all watches and closes all connections."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.stop()
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.core.store.close_watchers()
            await machine.server.stop()
            await machine.webhooks.close()
            machine.audit.close()
        archive, self._archive = self._archive, None
        if archive is not None:
            archive.close()

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """Certificate and key (PEM) that authenticate as ``user`` in ``groups``."""
        if self._authority is None:
            raise RuntimeError("the control plane is not running")
        return tuple(self._authority.client(user, groups))  # type: ignore[return-value]

    def register_service(self, namespace: str, name: str, url: str, *, port: int = 443) -> None:
        """Lets webhooks of the Service ``name`` be called at the local ``url``, whose certificate names the Service."""
        self.machine.endpoints.register(namespace, name, url, port=port)

    def add_user(self, token: str, user: User) -> None:
        """Lets ``token`` authenticate as ``user``."""
        self.machine.authenticator.add_user(token, user)

    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Creates or updates CRDs; they are established when this returns. Raises InstallError."""
        names: list[str] = []
        for crd in load_crds(sources):
            await self._install({key: value for key, value in crd.items() if key != "status"})
            names.append(crd["metadata"]["name"])
        return names

    def _installer(self) -> LoopbackClient:
        return LoopbackClient(self.machine.core, "envtest", manager="envtest")

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
