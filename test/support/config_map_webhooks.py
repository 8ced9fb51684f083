"""A small operator whose webhooks guard ConfigMaps that carry a label, for tests of how webhooks are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cryptography import x509

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Exchange, Transport
from cfo.runtime.clock import Clock
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.field import FieldErrors, Path, invalid, required
from cfo.runtime.kinds import CONFIG_MAP, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.webhook.admission import AdmissionRequest, Denied, InvalidObject
from cfo.runtime.webhook.certificates.certificate_authority import ca_certificates_of
from cfo.runtime.webhook.options import RotatedCertificates, ServiceReference, WebhookOptions, WebhookURL
from cfo.runtime.webhook.registration import Webhooks
from envtest import ControlPlane

SERVICE = ServiceReference("default", "hooks")
SECRET_KEY = NamespacedName("default", "hooks-cert")
NAME = "hooks"
GUARDED = {"guarded": "true"}
WITHIN = 20.0


class Colors:
    """Gives ConfigMaps a color, and refuses some."""

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        data = obj.setdefault("data", {})
        if "color" not in data:
            data["color"] = "blue"
            request.warn("it is blue now")

    async def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        color = Path("data").key("color")
        match obj["data"]["color"]:
            case "":
                raise FieldErrors([required(color, "every color has a name"), invalid(Path("data"), 1, "twice wrong")])
            case "mauve":
                raise InvalidObject(CONFIG_MAP, request.name, [invalid(color, "mauve", "not that one")])
            case "bug":
                raise IndexError("list index out of range")
        return ["a nice color"]

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None:
        if old["data"]["color"] != obj["data"]["color"]:
            raise Denied("colors do not change")

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        if obj["data"]["color"] == "gold":
            raise Denied("gold is kept")


def register(webhooks: Webhooks) -> None:
    colors = Colors()
    webhooks.register(
        CONFIG_MAP,
        defaulter=colors,
        validator=colors,
        object_selector={"matchLabels": GUARDED},
        validator_operations=["CREATE", "UPDATE", "DELETE"],  # type: ignore[list-item]
    )


POLICY = RotatedCertificates(secret=SECRET_KEY, propagation=0.3)
OPTIONS = WebhookOptions(
    service=SERVICE,
    certificates=POLICY,
    mutating_configuration=NAME,
    validating_configuration=NAME,
    bind_address="127.0.0.1:0",
    drain=0.0,
)


def free_url() -> WebhookURL:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return WebhookURL("127.0.0.1", probe.getsockname()[1])


def short(**policy: Any) -> RotatedCertificates:
    return replace(POLICY, **{"overlap": timedelta(seconds=3), **policy})


class Replica:
    """One process of the operator."""

    def __init__(self, manager: Manager, exchanges: list[Exchange]) -> None:
        self.manager = manager
        self.exchanges = exchanges

    def writes(self) -> list[tuple[str, str, str]]:
        return [
            (exchange.verb, exchange.resource.partition(".")[0], exchange.code)
            for exchange in self.exchanges
            if exchange.method in ("POST", "PUT", "PATCH", "DELETE")
        ]

    async def ready(self) -> None:
        await until(self._is_ready, "readiness")

    async def _is_ready(self) -> bool:
        failures = await self.manager.health.failures()
        assert not failures, failures
        return True

    async def problem(self) -> str:
        return (await self.manager.health.failures()).get("webhooks", "")

    def served(self) -> x509.Certificate:
        """The certificate of a new handshake, whomever it is from."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.manager.webhook_port))
        return x509.load_pem_x509_certificate(pem.encode())

    async def serial(self) -> int:
        return (await asyncio.to_thread(self.served)).serial_number


async def until(look: Callable[[], Any], what: str) -> Any:
    """Calls ``look`` until it returns something true; an AssertionError in it means "not yet"."""
    last: object = None
    try:
        async with asyncio.timeout(WITHIN):
            while True:
                try:
                    if found := await look():
                        return found
                except AssertionError as error:
                    last = error
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not happen in {WITHIN:g} s: {what} {last or ''}") from None


@asynccontextmanager
async def replica(
    plane: ControlPlane,
    options: WebhookOptions = OPTIONS,
    *,
    clock: Clock | None = None,
    config: ClientConfig | None = None,
) -> AsyncIterator[Replica]:
    exchanges: list[Exchange] = []
    async with Transport(config or ClientConfig.for_control_plane(plane), observe=exchanges.append) as transport:
        manager = Manager(transport, ManagerOptions(field_manager="hooks", webhook=options), clock=clock)
        register(manager.webhooks)
        async with manager:
            await manager.started()
            yield Replica(manager, exchanges)


class Somebody:
    """A user of the API server, and an admin who looks at it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def configure(self) -> None:
        """What a manifest brings: configurations without a bundle, which lead to the Service."""
        webhooks = Webhooks()
        register(webhooks)
        for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION):
            configuration = webhooks.configuration(kind, NAME, SERVICE)
            assert configuration is not None
            await self.client.create(configuration)

    async def create(self, name: str, **data: str) -> Object:
        metadata: Object = {"namespace": "default", "labels": GUARDED}
        metadata["generateName" if name.endswith("-") else "name"] = name
        return await self.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    async def configurations(self) -> list[Object]:
        found = [
            await self.client.get(kind, NamespacedName("", NAME))
            for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
        ]
        return [each for each in found if each is not None]

    async def bundles(self) -> set[bytes]:
        from cfo.runtime.webhook.certificates.client_configs import ca_bundles_of

        return {bundle for each in await self.configurations() for bundle in ca_bundles_of(each).values()}

    async def authorities(self) -> list[x509.Certificate]:
        """Whom the API server is told to trust; the same for every webhook."""
        bundles = await self.bundles()
        assert len(bundles) == 1
        return ca_certificates_of(next(iter(bundles)))

    async def urls(self) -> list[str]:
        return [
            hook["clientConfig"].get("url", "service")
            for each in await self.configurations()
            for hook in each["webhooks"]
        ]


@asynccontextmanager
async def somebody(plane: ControlPlane) -> AsyncIterator[Somebody]:
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        yield Somebody(Client(transport, RESTMapper(transport), field_manager="somebody"))


class Load:
    """Creates objects without pause until it is stopped, and keeps what went wrong."""

    def __init__(self, user: Somebody, workers: int = 4) -> None:
        self._user = user
        self._workers = workers
        self._stop = False
        self.created = 0
        self.errors: list[Exception] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        await self.more(10)
        return self

    async def more(self, count: int) -> None:
        """Returns when ``count`` more objects were created."""
        goal = self.created + count

        async def reached() -> bool:
            return self.created >= goal or bool(self.errors)

        await until(reached, f"{count} more objects")

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _work(self) -> None:
        while not self._stop:
            try:
                made = await self._user.create("load-")
                assert made["data"] == {"color": "blue"}
                self.created += 1
            except Exception as error:
                self.errors.append(error)
                return
