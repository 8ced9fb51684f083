"""The sections ``metrics``, ``health``, ``debug`` and ``webhook``: the servers of the operator."""

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Final, Self

from msgspec import field
from msgspec.structs import force_setattr

from cfo.config.section import Section
from cfo.config.values import DNS_LABEL, Namespace, NonEmpty, OptionalObjectName, matching
from cfo.runtime import GVK
from cfo.runtime.objects import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION

_DISABLED: Final = ("", "0")


class BindAddress(str):
    """An address to listen on, ``HOST:PORT``, or ``0`` or nothing to disable a server."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a valid address. Raises :class:`ValueError` with what is allowed."""
        if not isinstance(value, str):
            raise ValueError('must be a string such as ":8080", or "0" to disable the server')  # noqa: TRY004 (msgspec reports it)
        if value in _DISABLED:
            return cls(value)
        host, separator, port = value.rpartition(":")
        if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(
                'must be HOST:PORT such as ":8080" (port 0 to 65535), or "0" to disable the server'
            )
        if host.startswith("[") and host.endswith("]"):
            try:
                ip_address(host[1:-1])
            except ValueError:
                raise ValueError(f"{host} is not an IP address") from None
        return cls(value)


EndpointName = Annotated[
    str, matching(r"[A-Za-z0-9._~-]*", "one path segment of letters, digits and . _ ~ -")
]


class MetricsConfiguration(Section):
    """The Prometheus metrics endpoint."""

    bind_address: Annotated[
        BindAddress, 'Address to listen on, `HOST:PORT`; `"0"` disables the endpoint.'
    ] = BindAddress(":8080")
    secure_serving: Annotated[
        bool, "Serve over HTTPS, only to clients with permission to `get` the path `/metrics`."
    ] = False
    cert_dir: Annotated[
        str,
        "Directory with `tls.crt` and `tls.key` for `secureServing`; if empty, a certificate is generated.",
    ] = ""
    dashboard: Annotated[
        bool,
        "Serve a page with the state of all objects at `/dashboard/`, only to clients with permission to `get` the "
        "path `/dashboard/*`. Requires `secureServing`.",
    ] = False

    def __post_init__(self) -> None:
        if (
            not self.bind_address
        ):  # as in controller-runtime, whereas an empty address for health disables it
            force_setattr(self, "bind_address", BindAddress(":8080"))
        super().__post_init__()

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with settings that depend on each other."""
        if self.dashboard and (not self.secure_serving or self.bind_address == "0"):
            yield "dashboard requires secureServing: true and a bindAddress, to authorize its clients"


class HealthConfiguration(Section):
    """The endpoint for the kubelet's liveness and readiness probes."""

    bind_address: Annotated[
        BindAddress, 'Address to listen on, `HOST:PORT`; `"0"` disables the endpoint.'
    ] = BindAddress(":8081")
    readiness_endpoint_name: Annotated[
        EndpointName, "Name of the readiness check, a path below `/readyz`."
    ] = "readyz"
    liveness_endpoint_name: Annotated[
        EndpointName, "Name of the liveness check, a path below `/healthz`."
    ] = "healthz"


class DebugAddress(BindAddress):
    """A loopback address, ``metrics`` for the server of the metrics, or ``0`` or nothing to disable the reports."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a valid address. Raises :class:`ValueError` with what is allowed."""
        if value == "metrics":
            return cls(value)
        address = super().parse(value)
        if address in _DISABLED:
            return address
        host = address.rpartition(":")[0].strip("[]")
        with suppress(ValueError):
            if host == "localhost" or ip_address(host).is_loopback:
                return address
        raise ValueError(
            'must be a loopback address such as "127.0.0.1:6060", "metrics", or "0" to disable the server'
        )


class DebugConfiguration(Section):
    """Reports about queues, informers, leases, tasks and the largest objects, under the path `/debug`."""

    bind_address: Annotated[
        DebugAddress,
        'Loopback address to listen on, such as `127.0.0.1:6060`; `"metrics"`: the metrics endpoint, which requires '
        '`metrics.secureServing`; `"0"` disables them.',
    ] = DebugAddress("0")


class WebhookAddress(BindAddress):
    """An address to listen on, ``HOST:PORT``."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return a valid address. Raises :class:`ValueError` with what is allowed."""
        address = super().parse(value)
        if address in _DISABLED:
            raise ValueError(
                'must be HOST:PORT such as ":9443"; to disable webhooks, set webhook.enabled to false'
            )
        return address


class WebhookConfiguration(Section):
    """The admission webhooks: server, certificate, Service and webhook configurations."""

    enabled: Annotated[
        bool | None,
        "Whether to serve webhooks. If unset: yes in a cluster and with `--webhook-url`, otherwise only if "
        "their webhook configurations exist.",
    ] = None
    bind_address: Annotated[WebhookAddress, "Address to listen on, `HOST:PORT`."] = WebhookAddress(
        ":9443"
    )
    rotate_certificates: Annotated[
        bool,
        "Whether the operator creates and renews the certificate, in the Secret "
        "`codeflare-operator-webhook-server-cert`. If false, cert-manager or OLM mounts it in `certDir`.",
    ] = True
    cert_dir: Annotated[
        NonEmpty,
        "Directory with `tls.crt` and `tls.key`; used if `rotateCertificates` is false.",
    ] = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 (controller-runtime's default)
    client_ca_file: Annotated[
        NonEmpty | None,
        "PEM file with the CAs of the API servers' client certificates; reloaded when it changes. If set, "
        "connections without such a certificate are refused.",
    ] = field(default=None, name="clientCAFile")
    service_name: Annotated[
        str,
        matching(DNS_LABEL, "the name of a Service (a lower-case DNS label)"),
        "Service through which the API server calls the webhooks.",
    ] = "codeflare-operator-webhook-service"
    mutating_configuration_name: Annotated[
        OptionalObjectName,
        "The MutatingWebhookConfiguration to inject the CA bundle into; empty if OLM manages it.",
    ] = "codeflare-operator-mutating-webhook-configuration"
    validating_configuration_name: Annotated[
        OptionalObjectName,
        "The ValidatingWebhookConfiguration to inject the CA bundle into; empty if OLM manages it.",
    ] = "codeflare-operator-validating-webhook-configuration"

    controller_namespaces: Annotated[
        list[Namespace],
        "Namespaces of Kueue and other controllers that suspend or end objects, which users cannot create: their "
        "ServiceAccounts may write objects that users have filled to a limit of size. If empty, `kueue-system` and "
        "`openshift-kueue-operator`; those of the operator and `kube-system` always may.",
    ] = field(default_factory=list)

    @property
    def configurations(self) -> list[tuple[GVK, str]]:
        """Kind and name of the webhook configurations, without those that OLM manages."""
        mutating = (MUTATING_WEBHOOK_CONFIGURATION, self.mutating_configuration_name)
        validating = (VALIDATING_WEBHOOK_CONFIGURATION, self.validating_configuration_name)
        return [(kind, name) for kind, name in (mutating, validating) if name]
