"""Whether the operator serves webhooks if the configuration does not say so, and what it logs without them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from cfo.config.endpoints import WebhookConfiguration
from cfo.config.model import OperatorConfiguration
from cfo.operator import (
    _should_serve_webhooks,
    _warn_without_lease,
    new_manager,
    webhook_options,
)
from cfo.runtime import Client, ClientConfig, Forbidden, NamespacedName

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


@pytest.mark.parametrize(
    ("elects", "serves_webhooks", "warns"),
    [
        (False, False, True),
        (True, False, False),
        (False, True, False),
    ],
)
def test_operator_that_others_cannot_notice_warns(
    elects: bool, serves_webhooks: bool, warns: bool
) -> None:
    document = {"leaderElection": {"leaderElect": elects}}
    configuration = OperatorConfiguration.from_document(document)
    webhook = webhook_options(configuration.webhook, "ops") if serves_webhooks else None
    manager = new_manager(OUTSIDE, configuration, "ops", webhook)
    with capture_logs() as logs:
        _warn_without_lease(manager.options, NamespacedName("ops", "config"))
    assert bool(logs) is warns
    assert all(
        "leaderElection.leaderElect: true in ConfigMap ops/config" in line["remedy"]
        for line in logs
    )
