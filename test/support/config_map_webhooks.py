"""A small operator with webhooks for labeled ConfigMaps, for tests of the webhook server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from cryptography import x509

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.field import FieldErrors, Path, invalid, required
from cfo.runtime.objects.kinds import (
    CONFIG_MAP,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.runtime.pki.certificates import ca_certificates_of
from cfo.runtime.process.clock import Clock
from cfo.runtime.process.listener import free_port
from cfo.runtime.webhook.admission import AdmissionRequest, Denied, InvalidObject
from cfo.runtime.webhook.options import (
    RotatedCertificates,
    ServiceReference,
    WebhookOptions,
    WebhookURL,
)
from cfo.runtime.webhook.registration import Webhooks
from envtest import ControlPlane

SERVICE = ServiceReference("default", "hooks")
SECRET_KEY = NamespacedName("default", "hooks-cert")
CONFIGURATION_NAME = "hooks"
WEBHOOK_LABELS = {"guarded": "true"}
TIMEOUT_SECONDS = 120.0


class ColorWebhook:
    """Defaults the color of ConfigMaps and validates it."""

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        data = obj.setdefault("data", {})
        if "color" not in data:
            data["color"] = "blue"
            request.warn("color defaulted to blue")

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        color = Path("data").key("color")
        match obj["data"]["color"]:
            case "":
                raise FieldErrors(
                    [required(color, "must not be empty"), invalid(Path("data"), 1, "second error")]
                )
            case "mauve":
                raise InvalidObject(
                    CONFIG_MAP, request.name, [invalid(color, "mauve", "not allowed")]
                )
            case "bug":
                raise IndexError("list index out of range")
        return ["color accepted"]

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        if old["data"]["color"] != obj["data"]["color"]:
            raise Denied("color is immutable")
        if obj["data"]["color"] == "ice":
            raise Denied("ice is frozen", code=422, reason="Invalid")

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        if obj["data"]["color"] == "gold":
            raise Denied("gold cannot be deleted")


def register_webhooks(webhooks: Webhooks) -> None:
    """Register a :class:`ColorWebhook` for ConfigMaps with :data:`WEBHOOK_LABELS`."""
    webhook = ColorWebhook()
    webhooks.register(
        CONFIG_MAP,
        defaulter=webhook,
        validator=webhook,
        object_selector={"matchLabels": WEBHOOK_LABELS},
        validator_operations=["CREATE", "UPDATE", "DELETE"],  # type: ignore[list-item]
    )


CERTIFICATE_POLICY = RotatedCertificates(secret=SECRET_KEY, propagation=0.3)
OPTIONS = WebhookOptions(
    service=SERVICE,
    certificates=CERTIFICATE_POLICY,
    mutating_configuration=CONFIGURATION_NAME,
    validating_configuration=CONFIGURATION_NAME,
    bind_address="127.0.0.1:0",
    drain=0.0,
)


def free_url() -> WebhookURL:
    """Return a URL on 127.0.0.1 with a port that was free a moment ago."""
    return WebhookURL("127.0.0.1", free_port())


def short_overlap(**policy: Any) -> RotatedCertificates:
    """Return :data:`CERTIFICATE_POLICY` with an overlap of 3 seconds and the given changes."""
    return replace(CERTIFICATE_POLICY, **{"overlap": timedelta(seconds=3), **policy})


class Replica:
    """One replica of the operator, in this process."""

    def __init__(self, manager: Manager, exchanges: list[Exchange]) -> None:
        self.manager = manager
        self.exchanges = exchanges

    def writes(self) -> list[tuple[str, str, str]]:
        """Return verb, resource and status code of each write request."""
        return [
            (exchange.verb, exchange.resource.partition(".")[0], exchange.code)
            for exchange in self.exchanges
            if exchange.method in ("POST", "PUT", "PATCH", "DELETE")
        ]

    async def ready(self) -> None:
        """Wait until all health checks succeed."""
        await wait_until(self._is_ready, "readiness")

    async def _is_ready(self) -> bool:
        failures = await self.manager.health.failures()
        assert not failures, failures
        return True

    async def webhooks_problem(self) -> str:
        """Return the failure of the health check ``webhooks``, or an empty string."""
        return (await self.manager.health.failures()).get("webhooks", "")

    def served_certificate(self) -> x509.Certificate:
        """Return the serving certificate of a new TLS handshake; nothing is verified."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.manager.webhook_port))
        return x509.load_pem_x509_certificate(pem.encode())

    async def serial(self) -> int:
        """Return the serial number of the serving certificate."""
        return (await asyncio.to_thread(self.served_certificate)).serial_number


async def wait_until(check: Callable[[], Any], description: str) -> Any:
    """Call ``check`` until it returns a true value, and return that; fail after :data:`TIMEOUT_SECONDS`.

    An ``AssertionError`` in ``check`` means "not yet".
    """
    last: object = None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                try:
                    if result := await check():
                        return result
                except AssertionError as error:
                    last = error
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(
            f"did not happen in {TIMEOUT_SECONDS:g} s: {description} {last or ''}"
        ) from None


@asynccontextmanager
async def run_replica(
    plane: ControlPlane,
    options: WebhookOptions = OPTIONS,
    *,
    clock: Clock | None = None,
    config: ClientConfig | None = None,
) -> AsyncIterator[Replica]:
    """Run a manager with the webhooks until the end of the block; as admin, or with ``config``."""
    exchanges: list[Exchange] = []
    async with Transport(
        config or ClientConfig.for_control_plane(plane), observe=exchanges.append
    ) as transport:
        manager = Manager(
            transport, ManagerOptions(field_manager="hooks", webhook=options), clock=clock
        )
        register_webhooks(manager.webhooks)
        async with manager:
            await manager.started()
            yield Replica(manager, exchanges)


class User:
    """A client of the API server with administrator permissions, and helpers for webhook tests."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def create_configurations(self) -> None:
        """Create the webhook configurations as a manifest does: without caBundle, and with the Service as target."""
        webhooks = Webhooks()
        register_webhooks(webhooks)
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
            configuration = webhooks.configuration(kind, CONFIGURATION_NAME, SERVICE)
            assert configuration is not None
            await self.client.create(configuration)

    async def create(self, name: str, **data: str) -> Object:
        """Create a labeled ConfigMap; a name that ends with ``-`` is a ``generateName``."""
        metadata: Object = {"namespace": "default", "labels": WEBHOOK_LABELS}
        metadata["generateName" if name.endswith("-") else "name"] = name
        return await self.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    async def configurations(self) -> list[Object]:
        """Return the webhook configurations that exist."""
        result = [
            await self.client.get(kind, NamespacedName("", CONFIGURATION_NAME))
            for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
        ]
        return [configuration for configuration in result if configuration is not None]

    async def ca_bundles(self) -> set[bytes]:
        """Return the distinct CA bundles of all webhooks."""
        from cfo.runtime.webhook.certificates.client_configs import ca_bundles_of

        return {
            bundle
            for configuration in await self.configurations()
            for bundle in ca_bundles_of(configuration).values()
        }

    async def ca_certificates(self) -> list[x509.Certificate]:
        """Return the CA certificates in the caBundle, which must be the same for every webhook."""
        ca_bundles = await self.ca_bundles()
        assert len(ca_bundles) == 1
        return ca_certificates_of(next(iter(ca_bundles)))

    async def urls(self) -> list[str]:
        """Return the URL of each webhook, or ``service`` for a webhook with a Service reference."""
        return [
            hook["clientConfig"].get("url", "service")
            for configuration in await self.configurations()
            for hook in configuration["webhooks"]
        ]


@asynccontextmanager
async def connect_user(plane: ControlPlane) -> AsyncIterator[User]:
    """Connect a :class:`User` to the control plane until the end of the block."""
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        yield User(Client(transport, RESTMapper(transport), field_manager="user"))


_LOAD_PAUSE_SECONDS: Final = 0.02
"""The pause of a worker of :class:`Load`, so that 200 creations a second do not take all CPU time."""


class Load:
    """Creates ConfigMaps continuously until the end of the block, and collects the errors."""

    def __init__(self, user: User, workers: int = 2) -> None:
        self._user = user
        self._workers = workers
        self._stop = False
        self.created = 0
        self.errors: list[Exception] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        await self.create_more(10)
        return self

    async def create_more(self, count: int) -> None:
        """Wait until ``count`` more objects are created, or a creation fails."""
        target_count = self.created + count

        async def reached() -> bool:
            return self.created >= target_count or bool(self.errors)

        await wait_until(reached, f"{count} more objects")

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _work(self) -> None:
        while not self._stop:
            try:
                created_object = await self._user.create("load-")
                assert created_object["data"] == {"color": "blue"}
                self.created += 1
            except Exception as error:
                self.errors.append(error)
                return
            await asyncio.sleep(_LOAD_PAUSE_SECONDS)
