"""When there is an election, and on which Lease: what the configuration says, and where the operator runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cfo.config import parse
from cfo.operator import leader_election_options, rules
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.credentials import Credentials, ServiceAccount

OUTSIDE = ClientConfig(server="https://127.0.0.1:6443", token="t")


class Account(ServiceAccount):
    """The credentials of a pod, without its files."""

    def __init__(self) -> None:
        pass

    async def __call__(self, *, renew: bool = False) -> Credentials:
        return Credentials("Bearer t")


INSIDE = replace(OUTSIDE, credentials=Account())


def settings(text: str = "") -> Any:
    return parse(text).configuration.leader_election


@pytest.mark.parametrize(
    ("target", "text", "elects"),
    [
        (INSIDE, "", True),
        (INSIDE, "leaderElection: {leaderElect: null}", True),
        (INSIDE, "leaderElection: {leaderElect: false}", False),
        (OUTSIDE, "", False),
        (OUTSIDE, "leaderElection: {leaderElect: true}", True),
    ],
)
def test_unset_means_where_there_may_be_replicas(target: ClientConfig, text: str, elects: bool) -> None:
    assert (leader_election_options(target, settings(text), "ours") is not None) == elects


def test_the_usual_lease() -> None:
    found = leader_election_options(INSIDE, settings(), "ours")
    assert found is not None
    assert (found.name, found.namespace) == ("codeflare-operator-lock", "ours")
    assert (found.lease_duration, found.renew_deadline, found.retry_period) == (15, 10, 2)
    assert found.release_on_cancel


def test_everything_can_be_set() -> None:
    text = """
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
    found = leader_election_options(OUTSIDE, settings(text), "ours")
    assert found is not None
    assert (found.name, found.namespace) == ("lock", "elsewhere")
    assert (found.lease_duration, found.renew_deadline, found.retry_period) == (60, 40, 5)
    assert not found.release_on_cancel


def test_what_the_go_operator_writes_for_unset_is_unset() -> None:
    text = (
        'leaderElection: {leaderElect: true, leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceName: ""}'
    )
    found = leader_election_options(OUTSIDE, settings(text), "ours")
    assert found is not None
    assert (found.name, found.lease_duration) == ("codeflare-operator-lock", 15)


def test_the_rights_are_to_that_lease_alone() -> None:
    leases = [rule for rule in rules("ours") if rule.resources == ("leases",)]
    assert {rule.namespace for rule in leases} == {"ours"}
    assert {verb for rule in leases if not rule.resource_names for verb in rule.verbs} == {"create"}
    assert {name for rule in leases for name in rule.resource_names} == {"codeflare-operator-lock"}


@pytest.mark.parametrize(
    ("text", "selector"),
    [("labelSelector: operatorVersion=v1", "operatorVersion=v1"), ("labelSelector: 'a in (c,b)'", "a in (b,c)")],
)
def test_a_label_selector_is_read(text: str, selector: str) -> None:
    assert parse(text).configuration.label_selector == selector


@pytest.mark.parametrize("text", ["labelSelector: 'a in b'", "labelSelector: [a]", "watchNamespaces: [A_b]"])
def test_what_is_no_selector_or_namespace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition(":")[0]):
        parse(text)
