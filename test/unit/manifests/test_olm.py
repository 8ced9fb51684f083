"""The OLM bundle and catalog are valid, and the validator sees what is not."""

from __future__ import annotations

import copy
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.manifests import default_image
from cfo.version import __version__

ROOT = Path(__file__).parents[3]


@pytest.fixture
def validator(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    yield importlib.import_module("validate_olm")
    sys.modules.pop("validate_olm", None)


@pytest.fixture
def bundle(validator: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = validator.read(ROOT / "bundle/manifests")
    return found


def csv_of(bundle: list[dict[str, Any]]) -> dict[str, Any]:
    (csv,) = [obj for obj in bundle if obj["kind"] == "ClusterServiceVersion"]
    return csv


ANNOTATIONS = yaml.safe_load((ROOT / "bundle/metadata/annotations.yaml").read_text())["annotations"]


def test_what_is_in_the_tree_is_valid(validator: Any) -> None:
    assert validator.problems_of(ROOT, ROOT / "catalog/codeflare-operator/catalog.yaml") == []


def test_the_bundle_is_of_this_version(bundle: list[dict[str, Any]]) -> None:
    csv = csv_of(bundle)
    assert csv["metadata"]["name"] == f"codeflare-operator.v{__version__}"
    assert csv["spec"]["relatedImages"] == [{"name": "manager", "image": default_image()}]
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--webhook-cert-dir=/tmp/k8s-webhook-server/serving-certs"]
    resources = {
        r for each in csv["spec"]["install"]["spec"]["permissions"] for rule in each["rules"] for r in rule["resources"]
    }
    assert "leases" in resources
    assert "secrets" not in resources  # certificates are OLM's business


def _remove(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(csv: dict[str, Any]) -> None:
        for key in path[:-1]:
            csv = csv[key]
        del csv[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_remove("spec", "displayName"), "spec.displayName is missing"),
        (_remove("spec", "icon"), "spec.icon is missing"),
        (lambda csv: csv["spec"].update(version="1.0"), "spec.version"),
        (lambda csv: csv["spec"].update(replaces="codeflare-operator.v99.0.0"), "is not older"),
        (lambda csv: csv["spec"].update(relatedImages=[]), "is not in spec.relatedImages"),
        (lambda csv: csv["spec"]["installModes"].pop(), "spec.installModes"),
        (lambda csv: csv["spec"]["icon"][0].update(base64data="?"), "no base64"),
        (lambda csv: csv["spec"]["install"]["spec"].update(deployments=[]), "there is none"),
        (lambda csv: csv["spec"]["install"].update(strategy="helm"), "must be deployment"),
        (lambda csv: csv["spec"]["webhookdefinitions"][0].update(deploymentName="other"), "there is no deployment"),
        (lambda csv: csv["spec"]["webhookdefinitions"][0].update(sideEffects="Some"), "sideEffects"),
        (
            lambda csv: csv["spec"]["webhookdefinitions"].append(csv["spec"]["webhookdefinitions"][0]),
            "is there twice",
        ),
        (lambda csv: csv["metadata"]["annotations"].update({"alm-examples": "["}), "is no JSON"),
        (lambda csv: csv["metadata"]["annotations"].update({"alm-examples": "[]"}), "has no AppWrapper"),
        (lambda csv: csv["spec"]["customresourcedefinitions"].update(owned=[]), "which the CSV does not own"),
    ],
)
def test_a_broken_bundle_is_told(
    validator: Any, bundle: list[dict[str, Any]], change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    change(csv_of(bundle))
    assert any(problem in each for each in validator.bundle_problems(bundle, ANNOTATIONS))


def told(problem: str, problems: list[str]) -> bool:
    return any(problem in each for each in problems)


@pytest.mark.parametrize(
    "field",
    ["displayName", "version", "install", "installModes", "description", "provider", "maintainers", "icon"],
)
def test_each_field_that_registries_ask_for_is_required(
    validator: Any, bundle: list[dict[str, Any]], field: str
) -> None:
    del csv_of(bundle)["spec"][field]
    assert told(f"CSV: spec.{field} is missing", validator.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize("field", ["name", "annotations"])
def test_its_metadata_are_required(validator: Any, bundle: list[dict[str, Any]], field: str) -> None:
    del csv_of(bundle)["metadata"][field]
    assert told(f"CSV: metadata.{field} is missing", validator.bundle_problems(bundle, ANNOTATIONS))


def test_a_bundle_has_one_csv(validator: Any, bundle: list[dict[str, Any]]) -> None:
    csv = csv_of(bundle)
    assert told("holds 2", validator.bundle_problems([*bundle, csv], ANNOTATIONS))
    rest = [obj for obj in bundle if obj is not csv]
    assert told("holds 0", validator.bundle_problems(rest, ANNOTATIONS))


@pytest.mark.parametrize("field", ["name", "version", "kind"])
def test_an_owned_definition_is_named_in_full(validator: Any, bundle: list[dict[str, Any]], field: str) -> None:
    del csv_of(bundle)["spec"]["customresourcedefinitions"]["owned"][0][field]
    assert told(f"{field} is missing", validator.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda each: each.pop("name"), "name, or spec.template.spec.containers, is missing"),
        (lambda each: each.pop("spec"), "name, or spec.template.spec.containers, is missing"),
        (lambda each: each["spec"]["template"]["spec"].pop("containers"), "spec.containers, is missing"),
        (lambda each: each["spec"].pop("selector"), "its selector does not match its pods"),
        (lambda each: each["spec"]["template"].pop("metadata"), "its selector does not match its pods"),
        (lambda each: each["spec"]["template"]["spec"].pop("serviceAccountName"), "has no permissions"),
        (lambda each: each["spec"]["template"]["spec"]["containers"][0].pop("image"), "image None is not in"),
    ],
)
def test_a_deployment_without_what_it_needs_is_told(
    validator: Any, bundle: list[dict[str, Any]], change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    (deployment,) = csv_of(bundle)["spec"]["install"]["spec"]["deployments"]
    change(deployment)
    assert told(problem, validator.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("type", "type: must be one of"),
        ("deploymentName", "there is no deployment"),
        ("sideEffects", "sideEffects: must be"),
        ("admissionReviewVersions", "admissionReviewVersions is missing"),
        ("webhookPath", "webhookPath: must begin with /"),
    ],
)
def test_a_webhook_without_what_it_needs_is_told(
    validator: Any, bundle: list[dict[str, Any]], field: str, problem: str
) -> None:
    del csv_of(bundle)["spec"]["webhookdefinitions"][0][field]
    assert told(problem, validator.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize("name", ["mediatype", "manifests", "metadata", "package", "channels"])
def test_missing_annotations_are_told(validator: Any, bundle: list[dict[str, Any]], name: str) -> None:
    key = f"operators.operatorframework.io.bundle.{name}.v1"
    rest = {each: value for each, value in ANNOTATIONS.items() if each != key}
    assert validator.bundle_problems(bundle, rest) == [f"annotations.yaml: {key} is missing"]


def test_a_bundle_of_another_format_is_told(validator: Any, bundle: list[dict[str, Any]]) -> None:
    other = {**ANNOTATIONS, "operators.operatorframework.io.bundle.mediatype.v1": "plain+v0"}
    assert told("must be registry+v1", validator.bundle_problems(bundle, other))


def graph(*versions: str, entries: list[dict[str, Any]], channel: str = "stable-v1") -> list[dict[str, Any]]:
    """A catalog of bundles that serve one kind."""
    value = {"group": "g", "version": "v1", "kind": "K"}
    bundles = [
        {
            "schema": "olm.bundle",
            "name": f"op.v{version}",
            "package": "op",
            "image": f"image:{version}",
            "properties": [
                {"type": "olm.package", "value": {"packageName": "op", "version": version}},
                {"type": "olm.gvk", "value": dict(value)},
            ],
        }
        for version in versions
    ]
    return [
        {"schema": "olm.package", "name": "op", "defaultChannel": channel},
        {"schema": "olm.channel", "name": channel, "package": "op", "entries": entries},
        *bundles,
    ]


LINE: list[dict[str, Any]] = [
    {"name": "op.v1.0.0"},
    {"name": "op.v1.0.1", "skips": ["op.v1.0.0"]},
    {"name": "op.v1.1.0", "replaces": "op.v1.0.1"},
]
SOUND = graph("1.0.0", "1.0.1", "1.1.0", entries=LINE)


def test_a_sound_upgrade_graph_has_no_problem(validator: Any) -> None:
    assert validator.catalog_problems(SOUND, SOUND) == []


@pytest.mark.parametrize(
    ("catalog", "problem"),
    [
        (graph("1.0.0", "1.1.0", entries=[{"name": "op.v1.0.0"}, {"name": "op.v1.1.0"}]), "must have one head"),
        (
            graph("1.0.0", entries=[{"name": "op.v1.0.0"}, {"name": "op.v1.2.0", "replaces": "op.v1.0.0"}]),
            "no such bundle",
        ),
        (graph("1.0.0", "1.0.1", "1.1.0", entries=LINE[:2]), "is in no channel"),
        (graph("1.0.0", "1.0.1", entries=LINE[:2], channel="stable-v2"), "is of another major version"),
        (graph("1.0", entries=[{"name": "op.v1.0"}]), "must be a semantic version"),
        (
            graph("1.0.0", "1.1.0", entries=[{"name": "op.v1.0.0", "replaces": "op.v1.1.0"}, {"name": "op.v1.1.0"}]),
            "which is not older",
        ),
        (
            graph(
                "1.0.0",
                "1.1.0",
                entries=[
                    {"name": "op.v1.0.0", "replaces": "op.v1.1.0"},
                    {"name": "op.v1.1.0", "replaces": "op.v1.0.0"},
                ],
            ),
            "must have one head, has none",
        ),
    ],
)
def test_a_broken_upgrade_graph_is_told(validator: Any, catalog: list[dict[str, Any]], problem: str) -> None:
    assert any(problem in each for each in validator.catalog_problems(catalog))


@pytest.mark.parametrize(
    ("index", "field"),
    [
        *((0, field) for field in ("name", "defaultChannel")),
        *((1, field) for field in ("name", "package", "entries")),
        *((2, field) for field in ("name", "package", "image", "properties")),
    ],
)
def test_each_field_of_a_catalog_is_required(validator: Any, index: int, field: str) -> None:
    catalog = copy.deepcopy(SOUND)
    del catalog[index][field]
    assert told(f"{field} is missing", validator.catalog_problems(catalog))


def test_a_catalog_has_one_package_and_what_is_of_it(validator: Any) -> None:
    catalog = copy.deepcopy(SOUND)
    assert told("must have one olm.package, has 2", validator.catalog_problems([*catalog, catalog[0]]))
    assert told("must have one olm.package, has 0", validator.catalog_problems(catalog[1:]))
    catalog[1]["package"] = catalog[2]["package"] = "other"
    problems = validator.catalog_problems(catalog)
    assert told("channel stable-v1: package: there is no package other", problems)
    assert told("bundle op.v1.0.0: package: there is no package other", problems)
    assert told("schema 'olm.bundel'", validator.catalog_problems([*SOUND, {"schema": "olm.bundel"}]))


def test_an_entry_has_a_name_and_a_bundle_one_version(validator: Any) -> None:
    catalog = copy.deepcopy(SOUND)
    del catalog[1]["entries"][1]["name"]
    catalog[2]["properties"] = catalog[2]["properties"][1:]
    problems = validator.catalog_problems(catalog)
    assert told("entries[1]: name is missing", problems)
    assert told("must have one olm.package property, has 0", problems)
    catalog[0]["defaultChannel"] = "stable-v9"
    assert told("there is no channel stable-v9", validator.catalog_problems(catalog))


def test_what_is_dropped_or_taken_away_is_told(validator: Any) -> None:
    shorter = graph("1.1.0", entries=[{"name": "op.v1.1.0"}])
    assert any("op.v1.0.0: was in the catalog before" in each for each in validator.catalog_problems(shorter, SOUND))
    breaking = copy.deepcopy(SOUND)
    breaking[-1]["properties"][1]["value"]["version"] = "v2"
    assert any("needs a new major version" in each for each in validator.catalog_problems(breaking))


def test_releases_become_the_graph_that_opm_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    olm = importlib.import_module("olm")
    semver = importlib.import_module("semver")
    released = {"0.9.0": "stable", "1.0.0": "stable", "1.0.1": "stable", "1.1.0": "fast", "1.2.0": "candidate"}
    monkeypatch.setattr(olm, "releases", lambda: [(semver.Version.parse(key), name) for key, name in released.items()])
    found = {channel["name"]: channel["entries"] for channel in olm.channels()}
    assert list(found) == ["stable-v0", "stable-v1", "fast-v0", "fast-v1", "candidate-v0", "candidate-v1"]
    name = "codeflare-operator.v"
    assert found["stable-v1"] == [{"name": f"{name}1.0.0"}, {"name": f"{name}1.0.1", "skips": [f"{name}1.0.0"]}]
    assert found["fast-v1"][-1] == {
        "name": f"{name}1.1.0",
        "replaces": f"{name}1.0.1",
        "skips": [f"{name}1.0.0"],
    }
    assert found["candidate-v1"][-1]["replaces"] == f"{name}1.1.0"
    assert found["candidate-v1"][-1]["skips"] == [f"{name}1.0.0", f"{name}1.0.1"]
    assert olm.default_channel() == "stable-v1"
    released["2.0.0-rc.1"] = "candidate"
    assert olm.default_channel() == "stable-v1"  # nobody gets a candidate without asking


# What OLM v1 asks of the service account that installs; derived as in
# https://operator-framework.github.io/operator-controller/howto/derive-service-account

MANAGE = ("create", "get", "list", "watch", "update", "patch", "delete")
RESOURCES = {
    "ClusterRole": ("rbac.authorization.k8s.io", "clusterroles"),
    "ConfigMap": ("", "configmaps"),
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
    "PodDisruptionBudget": ("policy", "poddisruptionbudgets"),
    "Secret": ("", "secrets"),
    "Service": ("", "services"),
}
"""The kinds that bundles hold."""
MADE = (
    ("", "serviceaccounts"),
    ("", "services"),  # of the webhooks
    ("", "secrets"),
    ("apps", "deployments"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("cert-manager.io", "issuers"),  # for the certificates of the webhooks
    ("cert-manager.io", "certificates"),
)
"""What OLM makes of a CSV with permissions and webhooks."""

Right = tuple[str, str, str, str]
"""Group and resource (or a URL), name (empty: any), verb."""


def rights(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule.get("apiGroups", ["URL"])
        for resource in (rule["resources"] if "resources" in rule else rule["nonResourceURLs"])
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
    }


def installer() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The installer's rules, and the extension that it installs."""
    objects = {obj["kind"]: obj for obj in yaml.safe_load_all((ROOT / "config/olm/clusterextension.yaml").read_text())}
    extension, account = objects["ClusterExtension"], objects["ServiceAccount"]
    assert extension["spec"]["serviceAccount"]["name"] == account["metadata"]["name"]
    assert extension["spec"]["namespace"] == account["metadata"]["namespace"]
    assert objects["ClusterRoleBinding"]["subjects"] == [{"kind": "ServiceAccount", **account["metadata"]}]
    assert objects["ClusterRoleBinding"]["roleRef"]["name"] == objects["ClusterRole"]["metadata"]["name"]
    return objects["ClusterRole"]["rules"], extension


def needed(bundle: list[dict[str, Any]], extension: str) -> set[Right]:
    """The rights without which OLM v1 cannot install the bundle, keep it, and grant the operator its rights."""
    csv = csv_of(bundle)
    kinds = {RESOURCES[obj["kind"]] for obj in bundle if obj is not csv}
    found = {(*resource, "", verb) for resource in kinds | set(MADE) for verb in MANAGE}
    install = csv["spec"]["install"]["spec"]
    for each in (*install["permissions"], *install["clusterPermissions"]):
        found |= rights(each["rules"])
    for obj in bundle:
        if obj["kind"] in ("ClusterRole", "Role"):
            found |= rights(obj["rules"])
    return found | {("olm.operatorframework.io", "clusterextensions/finalizers", extension, "update")}


def lacking(granted: set[Right], wanted: set[Right]) -> set[Right]:
    return {
        (group, resource, name, verb)
        for group, resource, name, verb in wanted
        if not {(group, resource, name, verb), (group, resource, "", verb)} & granted
    }


def test_the_installer_may_do_all_that_the_bundle_asks_of_it(bundle: list[dict[str, Any]]) -> None:
    rules, extension = installer()
    wanted = needed(bundle, extension["metadata"]["name"])
    assert lacking(rights(rules), wanted) == set()
    assert not {"*", "escalate", "bind"} & {part for right in rights(rules) for part in right}
    for right in wanted:  # each of them counts
        name_free = (right[0], right[1], "", right[3])
        assert right in lacking(rights(rules) - {right, name_free}, wanted)


def test_the_installer_may_do_little_else(bundle: list[dict[str, Any]]) -> None:
    rules, extension = installer()
    wanted = needed(bundle, extension["metadata"]["name"])
    assert {right[:2] for right in lacking(wanted, rights(rules))} == set()


def test_what_installs_from_the_catalog_names_a_channel_that_it_has() -> None:
    documents = list(yaml.safe_load_all((ROOT / "catalog/codeflare-operator/catalog.yaml").read_text()))
    (package,) = [each for each in documents if each["schema"] == "olm.package"]
    offered = {each["name"] for each in documents if each["schema"] == "olm.channel"}
    _, extension = installer()
    subscription = list(yaml.safe_load_all((ROOT / "config/olm/subscription.yaml").read_text()))[1]
    assert subscription["spec"]["channel"] == package["defaultChannel"]
    assert set(extension["spec"]["source"]["catalog"]["channels"]) <= offered
    assert {subscription["spec"]["name"], extension["spec"]["source"]["catalog"]["packageName"]} == {package["name"]}


def test_the_page_on_installing_leaves_the_channel_to_what_is_generated() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert "config/olm/subscription.yaml" in page
    assert re.findall(r"(?:stable|fast|candidate)-v\d+", page) == []
