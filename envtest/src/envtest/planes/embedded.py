"""The embedded control plane: the API server of this package, on the caller's event loop."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import ssl
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from envtest.admission.plugin_names import enabled_plugins
from envtest.apimachinery.clock import Clock
from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.apimachinery.string_lists import checked_strings
from envtest.apimachinery.user import User
from envtest.auth.authenticator import load_token_file
from envtest.auth.tokens import TokenSettings
from envtest.builtins.catalog import resource_of_kind
from envtest.builtins.normalization import DecodeError, decode
from envtest.configuration.arguments import (
    checked_flag,
    checked_gates,
    checked_host,
    checked_path,
    checked_port,
    checked_seconds,
    checked_server_port,
    checked_string,
    checked_token,
    optional_path,
)
from envtest.configuration.feature_gates import enabled_features
from envtest.configuration.kubernetes_version import parse_version
from envtest.configuration.service_network import (
    DEFAULT_SERVICE_NETWORK,
    is_local,
    parse_service_network,
)
from envtest.controllers import Runner, create_runner, selected_names
from envtest.controllers.loopback_client import LoopbackClient
from envtest.endpoints.audit import AuditLog
from envtest.faults import Faults
from envtest.formats.certificate_authority import (
    SERVER_NAMES,
    CertificateAuthority,
    KeyPair,
    server_context,
)
from envtest.formats.manifests import Manifests, load_crds, require_sources
from envtest.planes.base import NOT_RUNNING, AdminAccess, BaseControlPlane, InstallError
from envtest.server.assembly import (
    APIServer,
    Cluster,
    assemble,
    create_initial_objects,
    fork,
    publish_address,
    publish_authentication,
    resume,
)
from envtest.storage import Store

if TYPE_CHECKING:
    from envtest.planes.snapshots import Snapshot
    from envtest.planes.trace import Trace
    from envtest.scenarios.scenario import Scenario
    from envtest.storage.archive import Archive

__all__ = ["EmbeddedServer"]


def _open_archive(folder: Path) -> Archive:
    from envtest.storage.archive import Archive

    return Archive(folder)


class _Copied(NamedTuple):
    """What a copy of a control plane starts with."""

    api_server: APIServer
    authority: CertificateAuthority
    context: ssl.SSLContext


_MAX_COMMON_NAME = 64
"""How many characters a certificate allows for a common name."""


def _check_fields(obj: Object) -> None:
    """Raise InstallError for fields that the kind does not have, as the real API server does for an applied object."""
    resource = resource_of_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
    if resource is None:
        return
    try:
        _, unknown = decode(resource.type, obj)
    except DecodeError:  # the API server reports it
        return
    if unknown:
        name = obj["metadata"]["name"]
        raise InstallError(f"{name}: " + ", ".join(f"unknown field {path}" for path in unknown))


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
        controllers: Sequence[str],
        token: str | None,
        token_auth_file: Path | str | None,
        audit_log: Path | str | None,
        data_dir: Path | str | None = None,
        service_cluster_ip_range: str = str(DEFAULT_SERVICE_NETWORK),
        snapshot: Path | str | None = None,
        kubernetes_version: str = "",
        feature_gates: Mapping[str, bool] | None = None,
        scenario: Scenario | None = None,
        plaintext: bool = False,
    ) -> None:
        self._version = parse_version(kubernetes_version)
        self._features = enabled_features(checked_gates(feature_gates), self._version)
        self._snapshot = optional_path("path", snapshot)
        self._scenario = scenario
        self._copied: _Copied | None = None
        self._started = False
        self._context: ssl.SSLContext | None = None
        self._service_network = parse_service_network(service_cluster_ip_range)
        self._data_dir = optional_path("data_dir", data_dir)
        self._archive: Archive | None = None
        self._port = checked_port(port)
        self._host = checked_host(host)
        self._plaintext = checked_flag("plaintext", plaintext)
        self._plaintext_url = ""
        self._crds = crds
        self.controllers = selected_names(controllers)
        self._token_auth_file = optional_path("token_auth_file", token_auth_file)
        self._audit_log = optional_path("audit_log", audit_log)
        self._api_server: APIServer | None = None
        self._authority: CertificateAuthority | None = None
        self._runner: Runner | None = None
        self._token = None if token is None else checked_token(token)
        self._admin_token = ""
        self._settings: Mapping[str, bytes] = {}

    @property
    def running_controllers(self) -> Collection[str]:
        """See :attr:`BaseControlPlane.running_controllers`: a scenario has nodes, which run the pods."""
        return self.controllers if self._scenario is None else (*self.controllers, "pods")

    @property
    def api_server(self) -> APIServer:
        """The parts of the running API server. Raises RuntimeError if it is not running."""
        if self._api_server is None:
            raise RuntimeError(NOT_RUNNING)
        return self._api_server

    @property
    def plaintext_url(self) -> str:
        """The base URL without TLS, if the control plane runs with ``plaintext``, otherwise an empty string."""
        return self._plaintext_url

    @property
    def scenario(self) -> Scenario:
        """The scenario of the plane, for callbacks and logs. Raises RuntimeError if it has none."""
        if self._scenario is None:
            raise RuntimeError(
                "the control plane has no scenario: pass scenario= when you create it"
            )
        return self._scenario

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

    @property
    def clock(self) -> Clock:
        """The time of the plane."""
        return self.api_server.core.clock

    async def start(self) -> None:
        """Start listening; return when everything is ready.

        Raises OSError, TokenFileError, ValueError, SnapshotError; RuntimeError if it is already running.
        """
        self._require_stopped()
        if self._copied is not None:
            if self._started:
                raise RuntimeError("a copy of a control plane can be started only once")
            self._started = True
            self._copied.api_server.cluster.events.adopt()
            await self._serve(*self._copied)
            return
        users: dict[str, User] = (
            load_token_file(self._token_auth_file) if self._token_auth_file else {}
        )
        crds = load_crds(self._crds)
        self._settings, saved = await self._load()
        self._authority = self._load_authority()
        self._admin_token = self._token or self._setting("token") or secrets.token_urlsafe(32)
        version = self._version
        if saved is not None:
            version = parse_version(self._setting("kubernetes-version"))
        cluster = Cluster(
            parse_service_network(self._setting("service-network") or str(self._service_network)),
            Clock(float(self._setting("clock-offset") or 0)),
            version,
        )
        api_server = assemble(
            admin_token=self._admin_token,
            users=users,
            audit_log=self._audit_log,
            plugins=enabled_plugins(
                disable=() if "serviceaccount" in self.controllers else ("ServiceAccount",)
            ),
            token_settings=TokenSettings(self._settings.get("token-key")),
            cluster=cluster,
            features=self._features,
        )
        self._api_server = api_server
        try:
            if saved is not None:
                saved.load(api_server)
            if self._archive is not None:
                self._save_settings(self._archive)
                self._archive.restore(api_server.core.store)
                cluster.clock.moved.append(self._save_offset)
                resume(api_server)
            await create_initial_objects(api_server)
            publish_authentication(api_server, self._authority.pem, None)
            if crds:
                await self.install_crds(*crds)
            known = (*SERVER_NAMES, str(cluster.service_network[1]))
            names = (self._host, *(name for name in known if name != self._host))
            context = server_context(self._authority.server(names), self._authority.pem)
        except BaseException:
            await self.stop()
            raise
        await self._serve(api_server, self._authority, context)

    async def _serve(
        self, api_server: APIServer, authority: CertificateAuthority, context: ssl.SSLContext
    ) -> None:
        """Start the server and the controllers of ``api_server``."""
        self._api_server = api_server
        self._authority = authority
        self._context = context
        if self._scenario is not None:
            from envtest.scenarios.pod_service import ScenarioPods

            self._scenario.now = api_server.core.clock.now
            api_server.core.scenario = self._scenario
            api_server.core.pod_service = ScenarioPods(self._scenario)
            api_server.cluster.endpoints.ports_of = self._scenario.ports_of
        try:
            await self._listen(api_server, context)
            if self._plaintext:
                port = await api_server.server.start_plaintext()
                self._plaintext_url = f"http://127.0.0.1:{port}"
            if not is_local(self._host):
                publish_address(api_server, self._host)
            self._runner = create_runner(
                api_server.core, self.controllers, ca=authority.pem, authority=authority
            )
            api_server.core.clock.settlers.append(self._runner.settle)
            self._runner.start()
        except BaseException:
            await self.stop()
            raise
        shown = f"[{self._host}]" if ":" in self._host else self._host
        url = f"https://{shown}:{api_server.server.port}"
        self._admin = AdminAccess(url, authority.pem, self._admin_token)

    async def _listen(self, api_server: APIServer, context: ssl.SSLContext) -> None:
        """Listen on the host and port. Raises OSError; ValueError for a host that is not this machine."""
        try:
            await api_server.server.start(self._host, self._port, context)
        except UnicodeError:  # the name has an empty or a long part
            raise self._wrong_host() from None
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                raise self._wrong_host() from None
            raise

    def _wrong_host(self) -> ValueError:
        return ValueError(f"host: {self._host!r}: must be an IP address or a name of this machine")

    async def _load(self) -> tuple[Mapping[str, bytes], Snapshot | None]:
        """Open the data folder or the snapshot; return its settings, and the snapshot."""
        if self._snapshot is not None:
            from envtest.planes.snapshots import read_snapshot

            saved = await asyncio.to_thread(read_snapshot, self._snapshot)
            return saved.settings, saved
        if self._data_dir is None:
            return {}, None
        self._archive = _open_archive(self._data_dir)
        return self._archive.settings(), None

    def fork(self, *, port: int = 0) -> Self:
        """Return a copy of the running control plane as it is now, which has yet to be started (``async with``).

        Objects, history, CRDs, users, tokens, the CA, registered Services and the time are the same; from then on both
        control planes change independently. The copy listens on another port, has no faults, an empty audit log and
        no data folder, and can be started once.
        """
        source = self.api_server
        assert self._authority is not None
        assert self._context is not None
        copy = type(self)(
            port=port,
            host=self._host,
            crds=[],
            controllers=self.controllers,
            token=self.token,
            token_auth_file=None,
            audit_log=None,
            scenario=self._scenario.fork() if self._scenario is not None else None,
            plaintext=self._plaintext,
        )
        copy._admin_token = self.token
        copy._copied = _Copied(fork(source), self._authority, self._context)
        return copy

    def skip_revisions(self, count: int) -> None:
        """Let the next write of a copy that has not been started have a revision that is ``count`` higher."""
        if self._copied is None or self._started:
            raise RuntimeError("only a copy that has not been started can skip revisions")
        self._copied.api_server.core.store.revision += count

    async def snapshot(self, path: Path | str) -> None:
        """Write the whole state to a file, from which :meth:`envtest.ControlPlane.restore` starts a control plane.

        The file contains the CA's key and the tokens, and is readable only by its owner. It replaces an existing file
        at once, when it is complete; only a snapshot is replaced. Raises TypeError for another argument than a path,
        ValueError for an empty one, and SnapshotError, which is a ValueError.
        """
        file = checked_path("path", path)
        from envtest.planes.snapshots import write_snapshot

        objects = self.store.fork()
        await asyncio.to_thread(write_snapshot, file, self._identity(), objects)

    async def advance(self, seconds: float) -> datetime:
        """Move the clock of the plane forward; see ``Clock.advance``. Returns the new time."""
        return await self.clock.advance(seconds)

    def trace(self) -> Trace:
        """Return a trace of all requests from now on and of the changes that they cause; stop it, or use ``with``."""
        from envtest.planes.trace import Trace

        return Trace(self.api_server.audit, self.store, self.api_server.core.registry).start()

    def _setting(self, name: str) -> str:
        return self._settings.get(name, b"").decode()

    def _load_authority(self) -> CertificateAuthority:
        certificate = self._setting("ca.crt")
        key = self._setting("ca.key")
        if not certificate or not key:
            return CertificateAuthority(None)
        return CertificateAuthority(KeyPair(certificate.encode(), key.encode()))

    def _identity(self) -> dict[str, bytes]:
        """Return the CA, the admin token, the token key and the time: with them kubeconfigs and tokens stay valid."""
        assert self._authority is not None
        pair = self._authority.pair
        core = self.api_server.core
        return {
            "ca.crt": pair.certificate,
            "ca.key": pair.key,
            "token": self._admin_token.encode(),
            "token-key": core.tokens.private_key(),
            "service-network": str(self.api_server.cluster.service_network).encode(),
            "clock-offset": repr(core.clock.offset).encode(),
            "kubernetes-version": str(core.version).encode(),
        }

    def _save_settings(self, archive: Archive) -> None:
        for name, value in self._identity().items():
            if name not in ("service-network", "kubernetes-version"):  # options of each start
                archive.put(name, value)

    def _save_offset(self, offset: float) -> None:
        if self._archive is not None:
            self._archive.put("clock-offset", repr(offset).encode())

    async def stop(self) -> None:
        """End all watches and close all connections."""
        self._admin = None
        self._plaintext_url = ""
        runner = self._runner
        self._runner = None
        if runner is not None:
            await runner.stop()
        api_server = self._api_server
        self._api_server = None
        if api_server is not None:
            api_server.core.clock.close()
            api_server.core.store.close_watchers()
            if api_server.core.scenario is not None:
                api_server.core.scenario.disconnect()
            await api_server.server.stop()
            await api_server.cluster.close()
            api_server.audit.close()
        archive = self._archive
        self._archive = None
        if archive is not None:
            archive.close()

    def client_certificate(
        self, user: str, groups: Sequence[str] = (), *, seconds: float | None = None
    ) -> tuple[bytes, bytes]:
        """Issue a certificate and key (PEM) that authenticate as ``user`` in ``groups``.

        It expires after ``seconds`` of the plane's clock, by default after 10 years. Raises TypeError or ValueError for
        a wrong argument: a ``user`` has 1 to 64 characters, as every common name.
        """
        checked_string("user", user)
        if len(user) > _MAX_COMMON_NAME:
            raise ValueError(f"user: {user!r}: must have at most {_MAX_COMMON_NAME} characters")
        checked_groups = checked_strings("groups", groups)
        if seconds is not None:
            checked_seconds("seconds", seconds)
        if self._authority is None:
            raise RuntimeError(NOT_RUNNING)
        expires = None if seconds is None else self.clock.now() + timedelta(seconds=seconds)
        return tuple(self._authority.client(user, checked_groups, expires=expires))  # type: ignore[return-value]

    def register_service(self, namespace: str, name: str, url: str, *, port: int = 443) -> None:
        """Call webhooks of the Service ``name`` at the local ``url``, whose certificate must contain its DNS name.

        Raises TypeError or ValueError if ``namespace`` or ``name`` is empty, if ``port`` is not from 1 to 65535, or if
        ``url`` is not ``https://HOST:PORT``.
        """
        checked_string("namespace", namespace)
        checked_string("name", name)
        checked_string("url", url)
        checked_server_port(port)
        self.api_server.cluster.endpoints.register(namespace, name, url, port=port)

    def add_user(self, token: str, user: User) -> None:
        """Accept ``token`` as the bearer token of ``user``.

        Raises TypeError if one of them has another type, ValueError for a token that no request can contain: an empty
        one, or one with spaces or control characters.
        """
        if not isinstance(user, User):
            raise TypeError(f"user: {user!r}: must be an envtest.User")
        if not isinstance(user.name, str):
            raise TypeError(f"user.name: {user.name!r}: must be a string")
        checked_strings("user.groups", user.groups)
        bearer = checked_token(token)
        self.api_server.authenticator.add_user(bearer, user)

    async def install_crds(self, *sources: Manifests) -> list[str]:
        """Create or update CRDs; they are established when this returns. Raises InstallError."""
        require_sources(sources)
        names: list[str] = []
        for crd in load_crds(sources):
            await self._install({key: value for key, value in crd.items() if key != "status"})
            names.append(crd["metadata"]["name"])
        return names

    def _installer(self) -> LoopbackClient:
        return LoopbackClient(self.api_server.core, "envtest", manager="envtest")

    async def _install(self, obj: Object) -> None:
        _check_fields(obj)
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
