"""Leader election options: from the configuration, and depending on whether the operator runs in a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.config import ConfigurationError, parse
from cfo.controllers.raycluster import ingress
from cfo.controllers.raycluster.environment import Environment
from cfo.operator import leader_election_options, new_manager, rules
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.credentials import Credentials, ServiceAccount
from cfo.runtime.controller.source import InformerSync
from cfo.runtime.objects.kinds import INGRESS, NETWORK_POLICY, POD
from cfo.sharding import sharding_options

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
def test_election_defaults_to_enabled_in_cluster(client_config: ClientConfig, document: str, elects: bool) -> None:
    assert (leader_election_options(client_config, settings(document), "ours") is not None) == elects


def test_sharding_enables_leader_election() -> None:
    assert leader_election_options(OUT_OF_CLUSTER, settings(), "ours", shards=16) is not None


@pytest.mark.parametrize("document", ["", "sharding: {shards: 1}", "sharding: null"])
def test_sharding_is_disabled_by_default(document: str) -> None:
    assert sharding_options(parse(document).configuration) is None


def test_kinds_of_the_flux_queue_are_kept_whole() -> None:
    plain, flux = (
        sharding_options(parse(f"sharding: {{shards: 16}}\nflux: {{enabled: {enabled}}}").configuration)
        for enabled in ("false", "true")
    )
    assert plain is not None
    assert flux is not None
    assert (plain.shards, plain.key_hash) == (16, "mixed")
    assert {RAY_CLUSTER, NETWORK_POLICY, POD} <= {*plain.divided_kinds}
    assert {RAY_CLUSTER, NETWORK_POLICY} <= {*flux.divided_kinds}
    assert POD in flux.whole_kinds
    assert POD not in flux.divided_kinds


def test_ingresses_of_all_namespaces_are_compared_on_each_replica() -> None:
    """Otherwise two RayClusters of different shards could get the same host."""
    configuration = parse("{sharding: {shards: 16}, kuberay: {ingressDomain: apps.example.com}}").configuration
    manager = new_manager(OUT_OF_CLUSTER, configuration, "ours")
    ingress.setup(manager, configuration.kuberay, Environment.detect(manager, configuration.kuberay))

    sharding = manager.sharding
    assert sharding is not None
    assert INGRESS not in sharding._divided - sharding._whole
    assert RAY_CLUSTER in sharding._divided - sharding._whole
    (controller,) = (found for found in manager.controllers if found.name == "raycluster-ingress")
    (compared,) = (source.informer for source in controller.sources if isinstance(source, InformerSync))
    assert (compared.gvk, compared.selection.whole, compared.selection.metadata_only) == (RAY_CLUSTER, True, True)


def test_api_server_selects_by_its_own_hash() -> None:
    options = sharding_options(parse("sharding: {shards: 16, selectOnServer: true}").configuration)
    assert options is not None
    assert options.key_hash == "fnv1a"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("sharding: {shards: 0}", "sharding.shards: "),
        ("sharding: {shards: 257}", "sharding.shards: "),
        ("sharding: {shards: '16'}", "sharding.shards: "),
        (
            "{sharding: {shards: 16}, leaderElection: {leaderElect: false}}",
            "sharding.shards: 16 requires leader election",
        ),
    ],
)
def test_impossible_sharding_is_rejected(document: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(document)


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
        'leaderElection: {leaderElect: true, leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceName: ""}'
    )
    options = leader_election_options(OUT_OF_CLUSTER, settings(document), "ours")
    assert options is not None
    assert (options.name, options.lease_duration) == ("codeflare-operator-lock", 15)


def test_rbac_rules_are_limited_to_the_lease() -> None:
    leases = [rule for rule in rules("ours") if rule.resources == ("leases",)]
    assert {rule.namespace for rule in leases} == {"ours"}
    assert {verb for rule in leases if not rule.resource_names for verb in rule.verbs} == {"create"}
    majors = {f"inference-stack-operator-v{major}" for major in range(10)}
    assert {name for rule in leases for name in rule.resource_names} == {"codeflare-operator-lock", *majors}


@pytest.mark.parametrize(
    ("document", "selector"),
    [("labelSelector: operatorVersion=v1", "operatorVersion=v1"), ("labelSelector: 'a in (c,b)'", "a in (b,c)")],
)
def test_label_selector_is_parsed(document: str, selector: str) -> None:
    assert parse(document).configuration.label_selector == selector


@pytest.mark.parametrize("document", ["labelSelector: 'a in b'", "labelSelector: [a]", "watchNamespaces: [A_b]"])
def test_invalid_selector_or_namespace_is_rejected(document: str) -> None:
    with pytest.raises(ValueError, match=document.partition(":")[0]):
        parse(document)
