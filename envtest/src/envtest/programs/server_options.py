"""The options of one API server, from the flags of kube-apiserver and the files that they name."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from envtest.admission.plugin_names import enabled_plugins
from envtest.apimachinery.user import User
from envtest.auth.authenticator import load_token_file
from envtest.auth.front_proxy import FrontProxy
from envtest.auth.tokens import ISSUER, TokenSettings
from envtest.configuration.feature_gates import (
    enabled_features,
    parse_feature_gates,
    switchable_features,
)
from envtest.configuration.kubernetes_version import LATEST, KubernetesVersion
from envtest.configuration.service_network import (
    DEFAULT_SERVICE_NETWORK,
    host_address,
    is_local,
    parse_service_network,
)
from envtest.formats.certificate_authority import SERVER_NAMES, CertificateAuthority, KeyPair
from envtest.programs.flags import CommandLine, FlagError, boolean

__all__ = ["ServerOptions", "read_options"]

_MAX_FILE_BYTES = 1 << 20
_MODES = ("RBAC", "Node")
_KEY_FILES = "service-account-key-file"
_SIGNING_KEY_FILE = "service-account-signing-key-file"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to serve: addresses, certificate, authentication, admission plugins and the cluster's settings.

    ``features`` are the feature gates that are on. ``runtime_config`` maps API group versions to ``true`` or ``false``;
    ``messages`` are reported to the user.
    """

    host: str
    advertised: str
    port: int
    certificate: KeyPair
    client_ca: bytes | None
    front_proxy: FrontProxy | None
    tokens: TokenSettings
    users: dict[str, User]
    anonymous: bool
    plugins: Collection[str]
    audit_log: Path | None
    prefix: str
    service_network: IPv4Network
    version: KubernetesVersion
    features: Collection[str] = ()
    runtime_config: dict[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


def read_options(command: CommandLine, version: KubernetesVersion = LATEST) -> ServerOptions:
    """Return the options of a command line; create the serving certificate in ``--cert-dir`` if it is missing.

    Raises FlagError, and OSError and ValueError for files that cannot be used.
    """
    messages: list[str] = []
    modes = command.items("authorization-mode") or ["RBAC"]
    if "RBAC" not in modes or any(mode not in _MODES for mode in modes):
        raise FlagError(
            f"--authorization-mode={','.join(modes)}: envtest supports only RBAC and Node,RBAC"
        )
    features = _features(command, version, messages)
    audit = command.last("audit-log-path")
    if audit and Path(audit).name == "-":
        messages.append("--audit-log-path=-: no audit events are written to the standard output")
        audit = ""
    text = command.last("service-cluster-ip-range", str(DEFAULT_SERVICE_NETWORK))
    network = parse_service_network(text.partition(",")[0])
    host = command.last("bind-address") or "0.0.0.0"  # noqa: S104 - kube-apiserver's default
    token_file = command.last("token-auth-file")
    client_ca = command.last("client-ca-file")
    certificate = _serving_certificate(command, host, network)
    return ServerOptions(
        host=host,
        advertised=_advertised(command, host),
        port=_port(command.last("secure-port", "6443")),
        certificate=certificate,
        client_ca=_read("client-ca-file", client_ca) if client_ca else None,
        front_proxy=_front_proxy(command),
        tokens=_token_settings(command),
        users=load_token_file(Path(token_file)) if token_file else {},
        anonymous=boolean("anonymous-auth", command.last("anonymous-auth", "true")),
        plugins=enabled_plugins(
            command.items("enable-admission-plugins"), command.items("disable-admission-plugins")
        ),
        audit_log=Path(audit) if audit else None,
        prefix=command.last("etcd-prefix", "/registry"),
        service_network=network,
        version=version,
        features=features,
        runtime_config=dict(_pair(item) for item in command.items("runtime-config")),
        messages=tuple(messages),
    )


def _advertised(command: CommandLine, host: str) -> str:
    """Return the IP address at which clients can reach the server: by default the one of the host's network."""
    text = command.last("advertise-address")
    if not text:
        return host_address() if is_local(host) else host
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise FlagError(f"--advertise-address={text}: {error}") from None


def _features(
    command: CommandLine, version: KubernetesVersion, messages: list[str]
) -> Collection[str]:
    """Return the feature gates that are on; append a message about those that envtest does not implement."""
    try:
        gates = parse_feature_gates(command.items("feature-gates"))
    except ValueError as error:
        raise FlagError(f"--feature-gates: {error}") from None
    unknown = sorted(gates.keys() - switchable_features(version))
    if unknown:
        messages.append(
            f"--feature-gates={','.join(unknown)}: envtest does not implement these feature gates"
        )
    return enabled_features({name: gates[name] for name in gates if name not in unknown}, version)


def _pair(item: str) -> tuple[str, str]:
    name, separator, value = item.partition("=")
    return name, value.lower() if separator else "true"


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536):
        raise FlagError(f"--secure-port={text}: must be a port from 1 to 65535")
    return int(text)


def _read(flag: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FlagError(f"--{flag}: {error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise FlagError(f"--{flag}={path}: the file is larger than {_MAX_FILE_BYTES} bytes")
    return content


def _front_proxy(command: CommandLine) -> FrontProxy | None:
    """Return the front proxy that can name users, if there is one."""
    file = command.last("requestheader-client-ca-file")
    if not file:
        return None
    return FrontProxy(
        _read("requestheader-client-ca-file", file),
        allowed_names=tuple(command.items("requestheader-allowed-names")),
        username_headers=tuple(command.items("requestheader-username-headers")),
        group_headers=tuple(command.items("requestheader-group-headers")),
        uid_headers=tuple(command.items("requestheader-uid-headers")),
        extra_prefixes=tuple(command.items("requestheader-extra-headers-prefix")),
    )


def _token_settings(command: CommandLine) -> TokenSettings:
    signing = command.last(_SIGNING_KEY_FILE)
    issuers = command.values.get("service-account-issuer") or [ISSUER]
    return TokenSettings(
        key=_read(_SIGNING_KEY_FILE, signing) if signing else None,
        public_keys=tuple(
            _read(_KEY_FILES, path) for path in dict.fromkeys(command.values.get(_KEY_FILES, ()))
        ),
        issuers=tuple(dict.fromkeys(issuers)),
        audiences=tuple(command.items("api-audiences")),
        key_set_url=command.last("service-account-jwks-uri"),
    )


def _serving_certificate(command: CommandLine, host: str, network: IPv4Network) -> KeyPair:
    certificate = command.last("tls-cert-file")
    key = command.last("tls-private-key-file")
    if certificate or key:
        if not (certificate and key):
            raise FlagError("--tls-cert-file and --tls-private-key-file must be specified together")
        return KeyPair(_read("tls-cert-file", certificate), _read("tls-private-key-file", key))
    folder = command.last("cert-dir")
    files = [Path(folder, name) for name in ("apiserver.crt", "apiserver.key")]
    if folder and all(file.is_file() for file in files):
        return KeyPair(*(_read("cert-dir", str(file)) for file in files))
    created = _create_certificate(host, network)
    if folder:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for file, content in zip(files, created, strict=True):
                file.touch(mode=0o600)
                file.write_bytes(content)
        except OSError as error:
            raise FlagError(f"--cert-dir={folder}: {error}") from error
    return created


def _create_certificate(host: str, network: IPv4Network) -> KeyPair:
    """Return a serving certificate of a new CA, which follows it in the file, as kube-apiserver creates it."""
    names = [*SERVER_NAMES, str(network[1])]
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        unspecified = False
    if not unspecified and host not in names:
        names.insert(0, host)
    authority = CertificateAuthority()
    pair = authority.server(names)
    return KeyPair(pair.certificate + authority.pem, pair.key)
