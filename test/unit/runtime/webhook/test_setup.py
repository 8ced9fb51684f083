"""The parts of a webhook service."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.runtime import CONFIG_MAP, ClientConfig, Manager, ManagerOptions
from cfo.runtime.webhook.options import ServiceReference, WebhookOptions, WebhookURL
from cfo.runtime.webhook.setup import _drain

URL = WebhookURL.parse("https://127.0.0.1:9443")


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 3.0),
        ({"url": URL}, 0.2),
        ({"url": URL, "drain": 0.0}, 0.0),
        ({"url": URL, "reuse_port": True}, 3.0),  # another replica may still be called at the URL
    ],
)
def test_only_process_at_a_url_does_not_wait_for_idle_connections(
    options: dict[str, Any], seconds: float
) -> None:
    assert _drain(WebhookOptions(service=ServiceReference("a", "b"), **options)) == seconds


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        (
            {"url": URL, "mutating_configuration": "a"},
            "no API server calls the webhook vconfigmap.kb.io: WebhookOptions has no validating_configuration",
        ),
        (
            {"url": URL, "validating_configuration": "a"},
            "no API server calls the webhook mconfigmap.kb.io: WebhookOptions has no mutating_configuration",
        ),
        ({"url": URL, "mutating_configuration": "a", "validating_configuration": "a"}, ""),
        ({"url": URL}, ""),
        ({"mutating_configuration": "a"}, ""),
    ],
)
def test_webhook_that_no_configuration_names_is_not_ready(
    options: dict[str, Any], problems: str
) -> None:
    manager = Manager(
        ClientConfig(server="https://localhost"),
        ManagerOptions(webhook=WebhookOptions(service=ServiceReference("a", "b"), **options)),
    )

    class Both:
        async def default(self, obj: Any, request: Any) -> None:
            """Change nothing."""

        async def validate_create(self, obj: Any, request: Any) -> None:
            """Allow everything."""

        async def validate_update(self, old: Any, obj: Any, request: Any) -> None:
            """Allow everything."""

    manager.webhooks.register(CONFIG_MAP, defaulter=Both(), validator=Both())
    with pytest.raises(RuntimeError) as raised:
        manager._webhook_service.check()
    found = [each for each in str(raised.value).split("; ") if each.startswith("no API server")]
    assert "; ".join(found) == problems
