"""The operators of InferenceStacks that OLM installs: bundles, catalog, chart, and the permissions of the installer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.inferencestack.leases import lease_name
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.config.document import parse
from cfo.operator import (
    leader_election_options,
    new_manager,
    webhook_configurations,
    webhook_options,
)
from cfo.runtime.client.config import ClientConfig
from hack.files import ToolError
from hack.generate.olm import stack_install, stack_package, validate
from hack.generate.olm.stack_install import installer_rules
from hack.generate.olm.stack_package import cluster_service_version
from hack.release.semver import Version
from test.support.charts import render_chart
from test.support.manifests import by_key
from test.support.olm import CREATED_BY_OLM, MANAGE, RESOURCES, missing, permissions

ROOT = Path(__file__).parents[3]
MAJORS = ("v1", "v2")


def bundle(major: str) -> list[dict[str, Any]]:
    return validate.read(ROOT / "deploy" / "inference-stack" / major / "manifests")


def csv_of(major: str) -> dict[str, Any]:
    (csv,) = [obj for obj in bundle(major) if obj["kind"] == "ClusterServiceVersion"]
    return csv


def names_of(objects: list[dict[str, Any]], csv: dict[str, Any]) -> set[str]:
    """Return the names of all objects that OLM creates for a bundle, except roles, whose names it generates."""
    spec = csv["spec"]
    install = spec["install"]["spec"]
    return {
        *(obj["metadata"]["name"] for obj in objects if obj["kind"] != "ClusterServiceVersion"),
        *(each["name"] for each in install["deployments"]),
        *(
            each["serviceAccountName"]
            for each in (*install["permissions"], *install["clusterPermissions"])
        ),
        *(each["generateName"] for each in spec["webhookdefinitions"]),
    }


def test_names_differ_by_major_version() -> None:
    one, two = (names_of(bundle(major), csv_of(major)) for major in MAJORS)
    assert one.isdisjoint(two)
    assert {name.replace("v1", "v2", 1) for name in one} == two
    selectors = [
        csv_of(major)["spec"]["install"]["spec"]["deployments"][0]["spec"]["selector"]
        for major in MAJORS
    ]
    assert selectors[0] != selectors[1]


def test_names_are_equal_within_a_major_version(monkeypatch: pytest.MonkeyPatch) -> None:
    later = Version(2, 15, 3)
    monkeypatch.setattr(
        stack_package, "releases", lambda: [(Version(2, 14, 0), "stable"), (later, "fast")]
    )
    csv, before = cluster_service_version(later), csv_of("v2")
    assert names_of([], csv) == names_of([], before)
    assert csv["metadata"]["name"] == "inference-stack-operator.v2.15.3"
    assert {**csv["spec"], "version": "2.14.0"} == before["spec"]


@pytest.mark.parametrize("major", MAJORS)
def test_bundle_owns_no_crd_and_requires_none(major: str) -> None:
    assert csv_of(major)["spec"]["customresourcedefinitions"] == {}
    assert {obj["kind"] for obj in bundle(major)} == {
        "ClusterServiceVersion",
        "ConfigMap",
        "Service",
        "PodDisruptionBudget",
    }


@pytest.mark.parametrize("major", MAJORS)
def test_operator_of_a_bundle_reconciles_only_stacks_of_its_version(major: str) -> None:
    (config_map,) = [obj for obj in bundle(major) if obj["kind"] == "ConfigMap"]
    (deployment,) = csv_of(major)["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"--config={config_map['metadata']['name']}" in container["args"]
    parsed = parse(config_map["data"]["config.yaml"])
    configuration = parsed.configuration
    assert (parsed.warnings, configuration.inference_stack.operator_version) == ([], major)
    target = ClientConfig(server="https://localhost")
    election = leader_election_options(target, configuration.leader_election, "ns")
    assert election is not None
    leases = {
        name
        for each in csv_of(major)["spec"]["install"]["spec"]["permissions"]
        for rule in each["rules"]
        if rule["resources"] == ["leases"]
        for name in rule.get("resourceNames", ())
    }
    assert leases == {election.name, lease_name(major)}
    assert election.name != lease_name(major)  # one process cannot hold a Lease twice
    manager = new_manager(target, configuration, "ns", webhook_options(configuration.webhook, "ns"))
    names = [controller.name for controller in manager.controllers]
    assert not [name for name in names if "raycluster" in name or "appwrapper" in name]
    groups = {
        group
        for found in webhook_configurations("ns", configuration)
        for webhook in found["webhooks"]
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
    }
    assert "ray.io" not in groups


@pytest.mark.parametrize("major", MAJORS)
def test_webhooks_exclude_the_stacks_of_other_versions(major: str) -> None:
    webhooks = csv_of(major)["spec"]["webhookdefinitions"]
    assert sorted(
        (webhook["failurePolicy"], *webhook["rules"][0]["apiGroups"]) for webhook in webhooks
    ) == [
        ("Fail", "doublewordai.co"),
        ("Fail", "models.takeoff.co"),
        ("Ignore", "doublewordai.co"),
        ("Ignore", "models.takeoff.co"),
    ]
    for webhook in webhooks:
        (expression,) = webhook["objectSelector"]["matchExpressions"]
        operator = "NotIn" if webhook["failurePolicy"] == "Fail" else "In"
        assert (expression["key"], expression["operator"]) == ("operatorVersion", operator)
        assert major not in expression["values"]
        assert {*MAJORS, "v3"} - {major} <= set(expression["values"])


def test_bundles_and_catalog_are_valid() -> None:
    assert validate.problems_of(ROOT) == []
    channels = {
        blob["name"]: [entry["name"] for entry in blob["entries"]]
        for blob in validate.read(ROOT / "deploy/inference-stack/catalog/catalog.yaml")
        if blob["schema"] == "olm.channel"
    }
    assert channels["fast-v1"] == ["inference-stack-operator.v1.1.0"]
    assert channels["fast-v2"] == ["inference-stack-operator.v2.14.0"]
    template = yaml.safe_load((ROOT / "deploy/inference-stack/template.yaml").read_text())
    assert (template["Schema"], template["GenerateMajorChannels"]) == ("olm.semver", True)
    assert {"Image": f"{stack_package.BUNDLE_IMAGE}:v2.14.0"} in template["Fast"]["Bundles"]


def test_released_bundle_never_leaves_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {
        blob["name"]: blob for blob in stack_package.catalog() if blob["schema"] == "olm.bundle"
    }
    more = [*stack_package.releases(), (Version(3, 0, 0), "fast")]
    monkeypatch.setattr(stack_package, "releases", lambda: more)
    monkeypatch.setattr(stack_package, "default_image", lambda: "registry.test/other")
    after = {
        blob["name"]: blob for blob in stack_package.catalog() if blob["schema"] == "olm.bundle"
    }
    assert {name: after[name] for name in before} == before
    assert (
        after["inference-stack-operator.v3.0.0"]["relatedImages"][1]["image"]
        == "registry.test/other"
    )
    monkeypatch.setattr(stack_package, "releases", lambda: more[1:])
    with pytest.raises(ToolError, match=r"inference-stack-operator\.v1\.1\.0 is not listed"):
        stack_package.catalog()
    monkeypatch.setattr(stack_package, "releases", lambda: [(Version(2, 13, 9), "fast"), *more])
    with pytest.raises(
        ToolError, match=r"the bundles of inference-stack-operator\.v2\.13\.9 are missing"
    ):
        stack_package.catalog()


def installer() -> list[dict[str, Any]]:
    """Return the rules of the installer in the chart."""
    objects = by_key(render_chart("olm", {}, ROOT / "deploy/charts/catalog"))
    name = stack_install.INSTALLER
    role, cluster_role = objects["Role", "olm", name], objects["ClusterRole", "", name]
    account = objects["ServiceAccount", "olm", name]["metadata"]
    for binding in (objects["RoleBinding", "olm", name], objects["ClusterRoleBinding", "", name]):
        assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
        assert binding["roleRef"]["name"] == name
    return [*role["rules"], *cluster_role["rules"]]


@pytest.mark.parametrize("major", MAJORS)
def test_installer_has_all_permissions_that_a_bundle_requires(major: str) -> None:
    csv = csv_of(major)
    names = {RESOURCES[obj["kind"]]: obj["metadata"]["name"] for obj in bundle(major) if obj != csv}
    resources = set(names) | {
        resource for resource in CREATED_BY_OLM if resource[1] != "mutatingwebhookconfigurations"
    }
    unnamed = ("create", "list", "watch")
    wanted = {(*resource, "", verb) for resource in resources for verb in unnamed}
    wanted |= {
        (*resource, name, verb)
        for resource, name in names.items()
        for verb in set(MANAGE) - set(unnamed)
    }
    install = csv["spec"]["install"]["spec"]
    for each in (*install["permissions"], *install["clusterPermissions"]):
        wanted |= permissions(each["rules"])
    assert missing(permissions(installer()), wanted) == set()


def test_installer_has_no_wildcard_and_no_permission_on_crds() -> None:
    granted = permissions(installer())
    assert not {"*", "escalate", "bind"} & {part for permission in granted for part in permission}
    reads = {"get", "list", "watch"}
    assert not [
        each for each in granted if each[1] == "customresourcedefinitions" and each[3] not in reads
    ]


def test_installer_manages_only_objects_of_the_bundles() -> None:
    own, cluster = installer_rules(stack_package.current_versions())
    changes = {"delete", "patch", "update"}
    unnamed = {
        resource
        for rule in own
        for resource in rule.resources
        if changes & set(rule.verbs) and not rule.resource_names
    }
    assert unnamed == {"secrets", "issuers", "certificates"}  # OLM chooses their names
    hooks = [
        rule
        for rule in cluster
        if rule.resources == ("validatingwebhookconfigurations",) and rule.resource_names
    ]
    assert {name for rule in hooks for name in rule.resource_names} == {
        each["generateName"]
        for major in MAJORS
        for each in csv_of(major)["spec"]["webhookdefinitions"]
    }


def test_chart_keeps_the_crds_when_it_is_uninstalled() -> None:
    objects = by_key(render_chart("olm", {}, ROOT / "deploy/charts/catalog"))
    for crd in inference_stack_crds():
        rendered = objects["CustomResourceDefinition", "", crd["metadata"]["name"]]
        assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert rendered["spec"] == crd["spec"]
    assert not (
        ROOT / "deploy/charts/catalog/crds"
    ).exists()  # Helm never updates CRDs in this folder
    disabled = render_chart(
        "olm", {"customResourceDefinition": {"enabled": False}}, ROOT / "deploy/charts/catalog"
    )
    assert "CustomResourceDefinition" not in {obj["kind"] for obj in disabled}


def test_chart_renders_the_samples() -> None:
    values = yaml.safe_load((ROOT / "deploy/charts/catalog/values.yaml").read_text())
    values["clusterExtension"]["enabled"] = True
    values["clusterExtension"]["versions"][0]["annotations"] = {"a": "b"}
    objects = by_key(render_chart("olm", values, ROOT / "deploy/charts/catalog"))
    samples = [
        obj
        for name in ("clustercatalog", "clusterextensions")
        for obj in validate.read(ROOT / f"config/olm/inference-stack-{name}.yaml")
        if obj["kind"] != "Namespace"
    ]
    assert len(samples) == 3
    for sample in samples:
        rendered = objects[sample["kind"], "", sample["metadata"]["name"]]
        assert rendered["spec"] == sample["spec"]
    assert objects["ClusterExtension", "", "inference-stack-operator-v1"]["metadata"][
        "annotations"
    ] == {"a": "b"}


def test_extensions_subscribe_to_the_stable_channel_of_their_major_version() -> None:
    channels = {
        sample["metadata"]["name"]: sample["spec"]["source"]["catalog"]["channels"]
        for sample in validate.read(ROOT / "config/olm/inference-stack-clusterextensions.yaml")
        if sample["kind"] == "ClusterExtension"
    }
    assert channels == {
        f"inference-stack-operator-{major}": [f"stable-{major}"] for major in MAJORS
    }


def test_samples_use_channels_of_the_catalog() -> None:
    offered = {
        blob["name"]
        for blob in validate.read(ROOT / "deploy/inference-stack/catalog/catalog.yaml")
        if blob["schema"] == "olm.channel"
    }
    for sample in validate.read(ROOT / "config/olm/inference-stack-clusterextensions.yaml"):
        if sample["kind"] == "ClusterExtension":
            (channel,) = sample["spec"]["source"]["catalog"]["channels"]
            assert channel in offered
            assert channel.rpartition("-")[2] == sample["metadata"]["name"].rpartition("-")[2]


def test_build_targets_use_the_generated_files() -> None:
    text = (ROOT / "hack/deploy.mk").read_text()
    assert "deploy/inference-stack/v*/bundle.Dockerfile" in text
    for major in MAJORS:
        dockerfile = (ROOT / f"deploy/inference-stack/{major}/bundle.Dockerfile").read_text()
        version = csv_of(major)["spec"]["version"]
        assert re.search(
            rf"^LABEL org\.opencontainers\.image\.version={re.escape(version)}$",
            dockerfile,
            re.MULTILINE,
        )
        for source in re.findall(r"^COPY (\S+)", dockerfile, re.MULTILINE):
            assert (ROOT / source).is_dir()
            assert (
                f"!deploy/inference-stack/{major}\n"
                in (
                    ROOT / f"deploy/inference-stack/{major}/bundle.Dockerfile.dockerignore"
                ).read_text()
            )
