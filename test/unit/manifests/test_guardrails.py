"""Tests of the manifests for namespaces of tenants."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cfo import operator
from cfo.cli import cli
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import guardrails

CLUSTER_SCOPED = {
    "authentications.config.openshift.io",
    "certificatesigningrequests.certificates.k8s.io",
    "clusterqueues.kueue.x-k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "dscinitializations.dscinitialization.opendatahub.io",
    "ingressclasses.networking.k8s.io",
    "ingresses.config.openshift.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "namespaces",
    "nodes",
    "priorityclasses.scheduling.k8s.io",
    "resourceflavors.kueue.x-k8s.io",
    "subjectaccessreviews.authorization.k8s.io",
    "tokenreviews.authentication.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
}
EVENTS = {"events", "events.events.k8s.io"}
"""The role edit does not allow tenants to create Events, and a full quota would hide those of the operator."""


def test_quota_has_every_kind_that_the_operator_caches_or_creates() -> None:
    rules = operator.rules("ns")
    for role in OPTIONAL_ROLES:
        rules += role.rules()
    used: set[str] = set()
    for rule in rules:
        if {"watch", "create"}.isdisjoint(rule.verbs):
            continue
        suffix = f".{rule.group}" if rule.group else ""
        used |= {f"{resource}{suffix}" for resource in rule.resources if "/" not in resource}
    counted = {name.removeprefix("count/") for name in guardrails.quota()["spec"]["hard"]}
    assert used - CLUSTER_SCOPED - EVENTS <= counted


def output(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["manifests", *arguments], prog_name="cfo")
    return result.exit_code, result.output


def test_command_prints_the_guardrails_of_a_namespace() -> None:
    code, text = output("--tenant", "team-a")
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    assert code == 0
    assert objects == guardrails.render(["team-a"])
    assert {obj["metadata"].get("namespace", "team-a") for obj in objects} == {"team-a"}


def test_command_prints_the_guardrails_of_several_namespaces() -> None:
    code, text = output("--tenant", "team-a", "--tenant", "team-b", "--tenant", "team-a")
    assert code == 0
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    keys = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in objects
    ]
    assert len(keys) == len(set(keys))
    names = [name for kind, _, name in keys if kind == "Namespace"]
    quotas = [namespace for kind, namespace, _ in keys if kind == "ResourceQuota"]
    assert (names, quotas) == (["team-a", "team-b"], ["team-a", "team-b"])
    code, text = output("--tenant", "team-a", "--tenant", "kube-system")
    assert code == 2
    assert "--tenant: kube-system" in text


def test_numbers_of_the_quota_are_adapted_and_the_others_stay() -> None:
    """A number that an administrator edits in the cluster is overwritten by the next upgrade."""
    options = ("--quota", "pods=500", "--quota", "limits.cpu=128", "--quota", "count/pods=1k")
    code, text = output("--tenant", "team-a", *options)
    assert code == 0
    adapted = {"pods": "500", "limits.cpu": "128", "count/pods": "1k"}
    (quota,) = [obj for obj in yaml.safe_load_all(text) if obj["kind"] == "ResourceQuota"]
    assert quota["spec"]["hard"] == {**guardrails.quota()["spec"]["hard"], **adapted}
    assert adapted.items().isdisjoint(guardrails.quota()["spec"]["hard"].items())


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        (["pods=500"], "1000"),
        (["pods=1k"], "2000"),
        (["pods=500", "count/pods=600"], "600"),
        (["pods=50"], "400"),
        (["limits.cpu=128"], "400"),
    ],
)
def test_more_pods_raise_the_number_that_counts_those_that_have_ended(
    quotas: list[str], expected: str
) -> None:
    """Otherwise the default of ``count/pods`` refuses pods that ``pods`` allows."""
    options = [word for quota in quotas for word in ("--quota", quota)]
    code, text = output("--tenant", "team-a", *options)
    (quota,) = [obj for obj in yaml.safe_load_all(text) if obj["kind"] == "ResourceQuota"]
    assert (code, quota["spec"]["hard"]["count/pods"]) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quota", "pods=1"], "Error: --quota: requires --tenant\n"),
        (
            ["--tenant", "a", "--quota", "pods"],
            "Error: --quota: 'pods': must be KEY=VALUE, such as pods=500\n",
        ),
        (
            ["--tenant", "a", "--quota", "pod=5"],
            (
                "Error: --quota: 'pod': must be a key of the printed ResourceQuota, or begin with requests., limits. "
                "or count/\n"
            ),
        ),
        (
            ["--tenant", "a", "--quota", "pods=-5"],
            "Error: --quota: pods: '-5': must be a quantity of 0 or more, such as 500 or 64Gi\n",
        ),
        (
            ["--tenant", "a", "--quota", "pods=many"],
            "Error: --quota: pods: 'many': must be a quantity of 0 or more, such as 500 or 64Gi\n",
        ),
        (
            ["--tenant", "a", "--quota", "pods=5", "--quota", "pods=6"],
            "Error: --quota: 'pods': must be given once\n",
        ),
        (["--tenant", "A b"], "Error: --tenant: 'A b': must be a lower-case DNS label\n"),
        (
            ["--tenant", "a", "--with", "prometheus"],
            (
                "Error: --tenant: must not be combined with --with, --api-server-cidr, --additional, --roles-only, "
                "--watch-namespace, --label-selector or --image\n"
            ),
        ),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], message: str) -> None:
    assert output(*arguments) == (2, message)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tenant", "kube-system"],
        ["--tenant", "openshift"],
        ["--tenant", "openshift-monitoring"],
        ["--tenant", "ops", "--namespace", "ops"],
    ],
)
def test_namespaces_of_the_system_and_the_operator_are_no_tenants(arguments: list[str]) -> None:
    code, text = output(*arguments)
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith(f"Error: --tenant: {arguments[1]}: must be a namespace of tenants")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({}, [{"from": [{"podSelector": {}}]}]), ({"ray.io/cluster": "rc"}, [])],
)
def test_only_pods_of_the_namespace_reach_its_pods_and_none_reach_rayclusters(
    labels: dict[str, str], expected: list[dict[str, Any]]
) -> None:
    sources = []
    for policy in guardrails.network_policies("team-a"):
        selector = policy["spec"]["podSelector"]
        excluded = {each["key"] for each in selector.get("matchExpressions", ())}
        if excluded.isdisjoint(labels):
            sources += policy["spec"].get("ingress", [])
    assert sources == expected
