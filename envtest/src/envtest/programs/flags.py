"""Command lines of the programs: which flags have an effect here, which have none, and which are refused.

A flag that cannot change a response is accepted without effect. A flag that would change responses, and is not
implemented, is refused unless it has the value that envtest behaves like. Unknown flags are reported and ignored.
Uses only the standard library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = [
    "ETCD",
    "KUBE_APISERVER",
    "KUBE_CONTROLLER_MANAGER",
    "CommandLine",
    "FlagError",
    "Program",
    "boolean",
    "words",
]


class FlagError(ValueError):
    """Raised for a command line that cannot be used; the message names the flag."""


@dataclass(frozen=True)
class Program:
    """The flags of a program; names are without dashes.

    ``effective`` maps the implemented flags to their help. ``booleans`` have no value unless it follows ``=``.
    ``fixed`` are flags that are accepted only with one of these values. ``refused`` are flags that would change
    responses. Flags that are in ``ignored``, or begin with one of ``ignored_prefixes``, have no effect.
    """

    name: str
    effective: Mapping[str, str]
    paths: Collection[str] = ()
    booleans: Collection[str] = ()
    fixed: Mapping[str, Collection[str]] = field(default_factory=dict)
    refused: Collection[str] = ()
    ignored: Collection[str] = ()
    ignored_prefixes: tuple[str, ...] = ()

    def usage(self) -> str:
        """Return the output of ``--help``: the flags with an effect."""
        lines = [f"{self.name} of envtest, an API server for tests. Flags with an effect:", ""]
        lines += [f"      --{name:<38} {text}" for name, text in sorted(self.effective.items())]
        return "\n".join(
            [
                *lines,
                "",
                f"All other flags of {self.name} that cannot change a response are accepted.",
                "",
            ]
        )

    def parse(self, arguments: Sequence[str]) -> CommandLine:
        """Return the flags of a command line, in the syntax of Go's ``pflag`` (one or two dashes). Raises FlagError."""
        values: dict[str, list[str]] = {}
        warnings: list[str] = []
        waiting = list(reversed(arguments))
        while waiting:
            argument = waiting.pop()
            name, separator, value = argument.lstrip("-").partition("=")
            if not argument.startswith("-") or not name:
                raise FlagError(f"unexpected argument {argument!r}")
            if not separator:
                has_value = bool(waiting) and not waiting[-1].startswith("-")
                value = waiting.pop() if has_value and name not in self.booleans else "true"
            if name in self.effective:
                values.setdefault(name, []).append(value)
            else:
                warnings += self._check(name, value)
        return CommandLine(values, warnings)

    def _check(self, name: str, value: str) -> list[str]:
        if name in self.fixed:
            if value not in self.fixed[name]:
                allowed = ", ".join(self.fixed[name])
                raise FlagError(f"--{name}={value}: envtest supports only {allowed}")
            return []
        if name in self.refused:
            raise FlagError(f"--{name}: envtest does not implement this flag")
        if name in self.ignored or name.startswith(self.ignored_prefixes):
            return []
        return [f"unknown flag --{name} is ignored"]


@dataclass(frozen=True)
class CommandLine:
    """The values of the flags with an effect, in order, and the warnings about other flags."""

    values: dict[str, list[str]]
    warnings: list[str]

    def last(self, name: str, default: str = "") -> str:
        """Return the value of a flag: the last one if it is repeated."""
        return self.values.get(name, [default])[-1]

    def items(self, name: str) -> list[str]:
        """Return the values of a flag that can be repeated and takes lists, without duplicates."""
        return list(
            dict.fromkeys(item for value in self.values.get(name, ()) for item in words(value))
        )

    def is_help(self) -> bool:
        """Return whether the help is requested."""
        return "help" in self.values or "h" in self.values


def words(text: str) -> list[str]:
    """Return the items of a comma-separated list."""
    words = [word.strip() for word in text.split(",")]
    return [word for word in words if word]


def boolean(name: str, value: str) -> bool:
    """Return the value of a boolean flag. Raises FlagError."""
    if value.lower() in {"true", "t", "1"}:
        return True
    if value.lower() in {"false", "f", "0"}:
        return False
    raise FlagError(f"--{name}={value}: must be true or false")


_HELP = {"help": "print the flags", "h": "print the flags", "version": "print the version"}

KUBE_APISERVER = Program(
    "kube-apiserver",
    effective={
        **_HELP,
        "advertise-address": "IP address in the endpoints of the Service kubernetes (default: of this host)",
        "anonymous-auth": "accept requests without credentials (default true)",
        "api-audiences": "audiences of tokens (default: the issuers)",
        "audit-log-path": "append audit events at Metadata level to this file",
        "authorization-mode": "RBAC or Node,RBAC",
        "bind-address": "address to listen on (default 0.0.0.0)",
        "cert-dir": "folder with apiserver.crt and apiserver.key; created if they are missing",
        "client-ca-file": "CA of client certificates",
        "disable-admission-plugins": "default admission plugins to disable",
        "enable-admission-plugins": "admission plugins to enable",
        "etcd-prefix": "API servers with the same prefix share their objects (default /registry)",
        "etcd-servers": "URL of the etcd of envtest",
        "requestheader-allowed-names": "common names of front proxies (default: any)",
        "requestheader-client-ca-file": "CA of the client certificates of front proxies",
        "requestheader-extra-headers-prefix": "prefixes of headers with extra fields of the user",
        "requestheader-group-headers": "headers with the groups of the user",
        "requestheader-uid-headers": "headers with the uid of the user",
        "requestheader-username-headers": "headers with the name of the user",
        "secure-port": "port to listen on (default 6443)",
        "service-account-issuer": "issuer of service account tokens; can be repeated",
        "service-account-jwks-uri": "URL of the keys in the discovery document",
        "service-account-key-file": "keys that verify service account tokens; can be repeated",
        "service-account-signing-key-file": "key that signs service account tokens (RSA or ECDSA)",
        "service-cluster-ip-range": "IPv4 network of cluster IPs (default 10.0.0.0/24)",
        "tls-cert-file": "serving certificate, with intermediate certificates",
        "tls-private-key-file": "key of the serving certificate",
        "token-auth-file": "static bearer tokens, in kube-apiserver's CSV format",
        "feature-gates": "ShardedListAndWatch=true; others are reported and ignored",
        "runtime-config": "accepted; envtest serves the stable APIs and some others",
    },
    paths={
        "audit-log-path",
        "cert-dir",
        "client-ca-file",
        "requestheader-client-ca-file",
        "service-account-key-file",
        "service-account-signing-key-file",
        "tls-cert-file",
        "tls-private-key-file",
        "token-auth-file",
    },
    booleans={
        "help",
        "h",
        "version",
        "allow-privileged",
        "anonymous-auth",
        "contention-profiling",
        "disable-http2-serving",
        "enable-aggregator-routing",
        "enable-bootstrap-token-auth",
        "enable-garbage-collector",
        "enable-logs-handler",
        "enable-priority-and-fairness",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "service-account-extend-token-expiration",
        "service-account-lookup",
        "shutdown-send-retry-after",
        "watch-cache",
    },
    fixed={
        "allow-privileged": ("true",),
        "default-not-ready-toleration-seconds": ("300",),
        "default-unreachable-toleration-seconds": ("300",),
        "enable-bootstrap-token-auth": ("false",),
        "insecure-port": ("0",),
        "kubernetes-service-node-port": ("0",),
        "service-account-lookup": ("true",),
        "service-node-port-range": ("30000-32767",),
        "storage-backend": ("", "etcd3"),
    },
    refused={
        "admission-control-config-file",
        "authentication-config",
        "authentication-token-webhook-config-file",
        "authorization-config",
        "authorization-policy-file",
        "authorization-webhook-config-file",
        "cors-allowed-origins",
        "emulated-version",
        "oidc-issuer-url",
        "service-account-max-token-expiration",
        "service-account-signing-endpoint",
        "tls-sni-cert-key",
    },
    ignored={
        "aggregator-reject-forwarding-redirect",
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "apiserver-count",
        "contention-profiling",
        "debug-socket-path",
        "default-watch-cache-size",
        "delete-collection-workers",
        "disable-http2-serving",
        "disabled-metrics",
        "egress-selector-config-file",
        "enable-aggregator-routing",
        "enable-garbage-collector",
        "enable-logs-handler",
        "enable-priority-and-fairness",
        "endpoint-reconciler-type",
        "event-ttl",
        "external-hostname",
        "goaway-chance",
        "http2-max-streams-per-connection",
        "lease-reuse-duration-seconds",
        "livez-grace-period",
        "logging-format",
        "max-connection-bytes-per-sec",
        "max-mutating-requests-inflight",
        "max-requests-inflight",
        "min-compatibility-version",
        "min-request-timeout",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "proxy-client-cert-file",
        "proxy-client-key-file",
        "request-timeout",
        "service-account-extend-token-expiration",
        "show-hidden-metrics-for-version",
        "storage-initialization-timeout",
        "storage-media-type",
        "strict-transport-security-directives",
        "tls-cipher-suites",
        "tls-min-version",
        "tracing-config-file",
        "v",
        "vmodule",
        "watch-cache",
        "watch-cache-sizes",
    },
    ignored_prefixes=(
        "audit-",
        "authentication-token-webhook-",
        "authorization-webhook-",
        "coordinated-leadership-",
        "encryption-provider-config",
        "etcd-",
        "kubelet-",
        "log-",
        "oidc-",
        "peer-",
        "shutdown-",
    ),
)

KUBE_CONTROLLER_MANAGER = Program(
    "kube-controller-manager",
    effective={
        **_HELP,
        "controllers": "controllers to run: names, * for all, -NAME for all but one (default *)",
        "kubeconfig": "how to connect to the API server, which must be that of envtest",
        "root-ca-file": "CA that is published to all namespaces",
        "cluster-signing-cert-file": "CA that signs certificates; without it, they are not signed",
        "cluster-signing-key-file": "its key",
    },
    paths={"kubeconfig", "root-ca-file", "cluster-signing-cert-file", "cluster-signing-key-file"},
    booleans={
        "help",
        "h",
        "version",
        "allocate-node-cidrs",
        "allow-untagged-cloud",
        "configure-cloud-routes",
        "contention-profiling",
        "enable-dynamic-provisioning",
        "enable-garbage-collector",
        "leader-elect",
        "profiling",
        "use-service-account-credentials",
    },
    fixed={"cloud-provider": ("", "external")},
    ignored={
        "allocate-node-cidrs",
        "bind-address",
        "cert-dir",
        "client-ca-file",
        "cluster-cidr",
        "cluster-name",
        "enable-garbage-collector",
        "feature-gates",
        "master",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "secure-port",
        "service-account-private-key-file",
        "service-cluster-ip-range",
        "tls-cert-file",
        "tls-private-key-file",
        "use-service-account-credentials",
        "v",
        "vmodule",
    },
    ignored_prefixes=(
        "authentication-",
        "authorization-",
        "cluster-signing-",
        "concurrent-",
        "horizontal-pod-autoscaler-",
        "kube-api-",
        "leader-elect",
        "log",
        "min-resync-",
        "namespace-sync-",
        "node-",
        "pv-recycler-",
        "pvclaimbinder-",
        "requestheader-",
        "resource-quota-",
        "route-",
        "terminated-pod-",
        "tls-",
    ),
)

ETCD = Program(
    "etcd",
    effective={
        **_HELP,
        "data-dir": "folder that keeps the objects (default: NAME.etcd)",
        "listen-client-urls": "http URLs to listen on (default http://localhost:2379)",
        "name": "name of this member (default: default)",
    },
    paths={"data-dir"},
    booleans={
        "help",
        "h",
        "version",
        "unsafe-no-fsync",
        "force-new-cluster",
        "strict-reconfig-check",
        "pre-vote",
    },
    refused={"cert-file", "client-cert-auth", "key-file", "trusted-ca-file", "config-file"},
    ignored_prefixes=(
        "advertise-",
        "auto-",
        "backend-",
        "discovery",
        "election-",
        "enable-",
        "experimental-",
        "force-",
        "grpc-",
        "heartbeat-",
        "host-whitelist",
        "initial-",
        "listen-",
        "log",
        "max-",
        "peer-",
        "pre-vote",
        "quota-backend-bytes",
        "snapshot-count",
        "socket-reuse-",
        "strict-",
        "unsafe-no-fsync",
        "wal-dir",
        "warning-",
    ),
)
