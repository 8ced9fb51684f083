"""Whether the operator serves webhooks if the configuration does not say so, and what it logs without them."""

from __future__ import annotations

from typing import Any, cast

import pytest
import yaml
from structlog.testing import capture_logs

from cfo.config.document import parse
from cfo.config.endpoints import WebhookConfiguration
from cfo.operator import (
    _is_only,
    _should_serve_webhooks,
    _show_others,
    new_manager,
    webhook_options,
)
from cfo.runtime import Client, ClientConfig, Forbidden, NamespacedName
from cfo.runtime.webhook import WebhookURL
from cfo.version import CONFIG_MAP_NAME

URL = "https://192.0.2.1:9443"
OUTSIDE = ClientConfig(server="https://127.0.0.1:6443", token="t")


class InCluster(ClientConfig):
    """A configuration with the credentials of a pod."""

    in_cluster = True


INSIDE = InCluster(server=OUTSIDE.server, token="t")


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


async def test_url_that_the_configuration_overrides_is_warned_of() -> None:
    client = cast("Client", WebhookReader(is_allowed=True))
    disabled = WebhookConfiguration(enabled=False)
    with capture_logs() as logs:
        assert not await _should_serve_webhooks(OUTSIDE, client, disabled, WebhookURL.parse(URL))
        assert not await _should_serve_webhooks(OUTSIDE, client, disabled, None)
    (line,) = logs
    assert line["event"] == "Not serving webhooks; --webhook-url is ignored"


@pytest.mark.parametrize(
    ("target", "document", "serves_webhooks", "expected"),
    [
        (OUTSIDE, {}, False, {"heartbeat", "webhook configuration watch"}),
        (OUTSIDE, {"webhook": {"enabled": False}}, False, {"heartbeat"}),
        (OUTSIDE, {"labelSelector": "team=a"}, False, {"warning"}),
        (OUTSIDE, {"watchNamespaces": ["a"]}, False, {"warning"}),
        (OUTSIDE, {"leaderElection": {"leaderElect": True}}, False, set()),
        (OUTSIDE, {}, True, set()),
        (INSIDE, {"leaderElection": {"leaderElect": False}}, False, {"info", "warning"}),
        (INSIDE, {"leaderElection": {"leaderElect": False}}, True, {"info"}),
    ],
)
def test_operator_without_leader_election_and_webhooks_shows_itself(
    target: ClientConfig, document: dict[str, Any], serves_webhooks: bool, expected: set[str]
) -> None:
    text = yaml.safe_dump(document)
    parsed = parse(text)
    webhook = webhook_options(parsed.configuration.webhook, "ops") if serves_webhooks else None
    manager = new_manager(target, parsed.configuration, "ops", webhook)
    added: list[Any] = []

    def add(runnable: Any, **_: Any) -> None:
        added.append(runnable)

    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        patch.setattr(manager, "add", add)
        _show_others(manager, target, parsed, NamespacedName("ops", "config"))
    names = {runnable.name for runnable in added}
    names |= {str(line["log_level"]) for line in logs}
    assert names == expected
    assert all(
        "leaderElection.leaderElect: true in ConfigMap ops/config" in line["remedy"]
        for line in logs
        if line["log_level"] == "warning"
    )


@pytest.mark.parametrize(
    ("target", "document", "config_map", "expected"),
    [
        (OUTSIDE, {}, CONFIG_MAP_NAME, True),
        (OUTSIDE, {}, "of-a-team", True),
        # The Deployment in the namespace has the same ConfigMap, so it reconciles the same part.
        (OUTSIDE, {"watchNamespaces": ["a"]}, CONFIG_MAP_NAME, True),
        (OUTSIDE, {"watchNamespaces": ["a"]}, "of-a-team", False),
        (OUTSIDE, {"labelSelector": "team=a"}, "of-a-team", False),
        (INSIDE, {}, CONFIG_MAP_NAME, False),
    ],
)
def test_operator_outside_is_the_only_one_with_its_lease_and_configuration(
    target: ClientConfig, document: dict[str, Any], config_map: str, *, expected: bool
) -> None:
    configuration = parse(yaml.safe_dump(document)).configuration
    assert _is_only(target, configuration, NamespacedName("ops", config_map)) == expected


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ([], ["kube-system", "kueue-system", "openshift-kueue-operator"]),
        (["kueue"], ["kube-system", "kueue"]),
    ],
)
def test_controllers_that_may_exceed_limits_of_size_are_configured(
    configured: list[str], expected: list[str]
) -> None:
    parsed = parse(yaml.safe_dump({"webhook": {"controllerNamespaces": configured}}))
    options = webhook_options(parsed.configuration.webhook, "ops")
    assert options.controller_namespaces == expected
