"""Whether the operator serves webhooks if the configuration does not say so."""

from __future__ import annotations

from typing import Any, cast

from structlog.testing import capture_logs

from cfo.config.endpoints import WebhookConfiguration
from cfo.operator import _should_serve_webhooks
from cfo.runtime import Client, ClientConfig, Forbidden

OUTSIDE = ClientConfig(server="https://127.0.0.1:6443", token="t")


class WebhookReader:
    """A client that finds no object, or is not allowed to read any."""

    def __init__(self, *, is_allowed: bool) -> None:
        self.is_allowed = is_allowed

    async def get(self, *_: Any, **__: Any) -> None:
        if not self.is_allowed:
            raise Forbidden(403, {"message": "not allowed"})


async def reason(*, is_allowed: bool) -> str:
    """Return the logged reason why no webhooks are served."""
    client = cast("Client", WebhookReader(is_allowed=is_allowed))
    with capture_logs() as logs:
        assert not await _should_serve_webhooks(OUTSIDE, client, WebhookConfiguration(), None)
    (line,) = logs
    return str(line["reason"])


async def test_reason_without_a_webhook_configuration() -> None:
    assert (await reason(is_allowed=True)).endswith(", and no webhook configuration exists")


async def test_reason_if_webhook_configurations_cannot_be_read() -> None:
    found = await reason(is_allowed=False)
    assert "and it is unknown whether webhook configurations exist: " in found
    assert "not allowed" in found
