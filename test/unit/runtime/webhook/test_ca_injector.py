"""The CA injector with a client that is refused; test/integration/test_webhooks.py has the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from structlog.testing import capture_logs

from cfo.runtime import GVK, Cache, Client, Forbidden, NamespacedName, Object, SystemClock
from cfo.runtime.webhook import CertificateFiles, ServiceReference, WebhookOptions, WebhookURL
from cfo.runtime.webhook.certificates.ca_injector import CAInjector
from cfo.runtime.webhook.registration import Webhooks


class RefusedClient:
    """A client that is not allowed to create anything, and counts the attempts."""

    def __init__(self) -> None:
        self.attempts = 0

    async def create(self, _: Object) -> Object:
        self.attempts += 1
        raise Forbidden(403)


class EmptyReader:
    """An informer, and its reader, without objects."""

    @property
    def reader(self) -> EmptyReader:
        return self

    def get(self, _: NamespacedName) -> None:
        """Find nothing."""


class EmptyCache:
    """A cache without objects."""

    def informer(self, *_: Any, **__: Any) -> EmptyReader:
        return EmptyReader()


class Accepting:
    """A defaulter and validator that accepts everything."""

    async def default(self, *_: Any) -> None:
        """Change nothing."""

    async def validate_create(self, *_: Any) -> None:
        """Accept."""

    async def validate_update(self, *_: Any) -> None:
        """Accept."""


async def test_forbidden_creation_of_webhook_configurations_is_one_warning(tmp_path: Path) -> None:
    webhooks = Webhooks()
    kind = GVK("example.com", "v1", "Website")
    webhooks.register(kind, defaulter=cast("Any", Accepting()), validator=cast("Any", Accepting()))
    options = WebhookOptions(
        service=ServiceReference("ops", "hooks"),
        certificates=CertificateFiles(directory=tmp_path),
        mutating_configuration="mutating",
        validating_configuration="validating",
        url=WebhookURL.parse("https://127.0.0.1:9443"),
    )
    client = RefusedClient()
    injector = CAInjector(
        cast("Client", client), cast("Cache", EmptyCache()), webhooks, options, clock=SystemClock()
    )
    with capture_logs() as logs:
        delays = [await injector.inject(None) for _ in range(3)]
    assert client.attempts == 6
    assert delays == [60.0] * 3
    (line,) = logs
    assert line["log_level"] == "warning"
    assert line["hint"].startswith("apply the manifests of this operator again")
