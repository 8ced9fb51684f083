"""Leader election options: from the configuration, and depending on whether the operator runs in a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cfo.config.document import parse
from cfo.operator import leader_election_options, rules
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.credentials import Credentials, ServiceAccount

OUT_OF_CLUSTER = ClientConfig(server="https://127.0.0.1:6443", token="t")


class PodServiceAccount(ServiceAccount):
    """Service account credentials without mounted files."""

    def __init__(self) -> None:
        pass

    async def __call__(self, *, renew: bool = False) -> Credentials:
        return Credentials("Bearer t")


IN_CLUSTER = replace(OUT_OF_CLUSTER, credentials=PodServiceAccount())


def settings(document: str = "") -> Any:
    return parse(document).configuration.leader_election


@pytest.mark.parametrize(
    ("client_config", "document", "elects"),
    [
        (IN_CLUSTER, "", True),
        (IN_CLUSTER, "leaderElection: {leaderElect: null}", True),
        (IN_CLUSTER, "leaderElection: {leaderElect: false}", False),
        (OUT_OF_CLUSTER, "", False),
        (OUT_OF_CLUSTER, "leaderElection: {leaderElect: true}", True),
    ],
)
def test_election_defaults_to_enabled_in_cluster(
    client_config: ClientConfig, document: str, elects: bool
) -> None:
    assert (
        leader_election_options(client_config, settings(document), "ours") is not None
    ) == elects


def test_default_lease() -> None:
    options = leader_election_options(IN_CLUSTER, settings(), "ours")
    assert options is not None
    assert (options.name, options.namespace) == ("codeflare-operator-lock", "ours")
    assert (options.lease_duration, options.renew_deadline, options.retry_period) == (15, 10, 2)
    assert options.release_on_cancel


def test_all_election_settings() -> None:
    document = """
    leaderElection:
      leaderElect: true
      leaseDuration: 60s
      renewDeadline: 40s
      retryPeriod: 5000000000
      resourceLock: leases
      resourceName: lock
      resourceNamespace: elsewhere
      releaseOnCancel: false
    """
    options = leader_election_options(OUT_OF_CLUSTER, settings(document), "ours")
    assert options is not None
    assert (options.name, options.namespace) == ("lock", "elsewhere")
    assert (options.lease_duration, options.renew_deadline, options.retry_period) == (60, 40, 5)
    assert not options.release_on_cancel


def test_zero_values_of_the_go_operator_mean_unset() -> None:
    document = (
        "leaderElection: {leaderElect: true, leaseDuration: 0s, renewDeadline: 0s, "
        'retryPeriod: 0s, resourceName: ""}'
    )
    options = leader_election_options(OUT_OF_CLUSTER, settings(document), "ours")
    assert options is not None
    assert (options.name, options.lease_duration) == ("codeflare-operator-lock", 15)


def test_rbac_rules_are_limited_to_the_lease() -> None:
    leases = [rule for rule in rules("ours") if rule.resources == ("leases",)]
    of_others = [rule for rule in leases if not rule.namespace]
    assert [(rule.verbs, rule.resource_names) for rule in of_others] == [
        (("get",), ("codeflare-operator-lock",))
    ]
    leases = [rule for rule in leases if rule.namespace]
    assert {rule.namespace for rule in leases} == {"ours"}
    assert {verb for rule in leases if not rule.resource_names for verb in rule.verbs} == {"create"}
    majors = {f"inference-stack-operator-v{major}" for major in range(10)}
    assert {name for rule in leases for name in rule.resource_names} == {
        "codeflare-operator-lock",
        *majors,
    }


@pytest.mark.parametrize(
    ("document", "selector"),
    [
        ("labelSelector: operatorVersion=v1", "operatorVersion=v1"),
        ("labelSelector: 'a in (c,b)'", "a in (b,c)"),
    ],
)
def test_label_selector_is_parsed(document: str, selector: str) -> None:
    assert parse(document).configuration.label_selector == selector


@pytest.mark.parametrize(
    "document", ["labelSelector: 'a in b'", "labelSelector: [a]", "watchNamespaces: [A_b]"]
)
def test_invalid_selector_or_namespace_is_rejected(document: str) -> None:
    with pytest.raises(ValueError, match=document.partition(":")[0]):
        parse(document)
