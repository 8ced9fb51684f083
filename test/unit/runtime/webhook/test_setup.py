"""The parts of a webhook service."""

from __future__ import annotations

from typing import Any

import pytest

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
