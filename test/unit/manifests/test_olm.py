"""Tests of the OLM bundle and catalog, their validator, and the permissions of the installer."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.manifests.names import default_image
from cfo.version import __version__
from hack.generate.olm import channels, validate
from hack.release.semver import Version
from test.support.olm import CREATED_BY_OLM, MANAGE, RESOURCES, Permission, missing, permissions

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bundle() -> list[dict[str, Any]]:
    return validate.read(ROOT / "deploy/bundle/manifests")


def csv_of(bundle: list[dict[str, Any]]) -> dict[str, Any]:
    (csv,) = [obj for obj in bundle if obj["kind"] == "ClusterServiceVersion"]
    return csv


ANNOTATIONS = yaml.safe_load((ROOT / "deploy/bundle/metadata/annotations.yaml").read_text())[
    "annotations"
]


def test_bundle_and_catalog_of_the_tree_are_valid() -> None:
    assert validate.problems_of(ROOT, ROOT / "deploy/catalog/codeflare-operator/catalog.yaml") == []


@pytest.mark.parametrize("name", ["bundle", "catalog"])
def test_image_can_copy_its_files(name: str) -> None:
    sources = re.findall(
        r"^COPY ([^/\s]+/[^/\s]+)", (ROOT / f"deploy/{name}.Dockerfile").read_text(), re.MULTILINE
    )
    ignored = (ROOT / f"deploy/{name}.Dockerfile.dockerignore").read_text().splitlines()
    assert set(sources) == {f"deploy/{name}"}
    assert ignored[-2:] == [
        "*",
        f"!deploy/{name}",
    ]  # .dockerignore, which is for the operator's image, excludes both


def test_bundle_has_this_version(bundle: list[dict[str, Any]]) -> None:
    csv = csv_of(bundle)
    assert csv["metadata"]["name"] == f"codeflare-operator.v{__version__}"
    assert csv["spec"]["relatedImages"] == [{"name": "manager", "image": default_image()}]
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--webhook-cert-dir=/tmp/k8s-webhook-server/serving-certs"]
    resources = {
        r
        for each in csv["spec"]["install"]["spec"]["permissions"]
        for rule in each["rules"]
        for r in rule["resources"]
    }
    assert "leases" in resources
    assert "secrets" not in resources  # OLM manages the certificates


def test_examples_are_for_real_clusters(bundle: list[dict[str, Any]]) -> None:
    assert "envtest" not in csv_of(bundle)["metadata"]["annotations"]["alm-examples"]


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
        (lambda csv: csv["spec"]["icon"][0].update(base64data="?"), "is not valid base64"),
        (lambda csv: csv["spec"]["install"]["spec"].update(deployments=[]), "must not be empty"),
        (lambda csv: csv["spec"]["install"].update(strategy="helm"), "must be deployment"),
        (
            lambda csv: csv["spec"]["webhookdefinitions"][0].update(deploymentName="other"),
            "deployment other does not exist",
        ),
        (
            lambda csv: csv["spec"]["webhookdefinitions"][0].update(sideEffects="Some"),
            "sideEffects",
        ),
        (
            lambda csv: csv["spec"]["webhookdefinitions"].append(
                csv["spec"]["webhookdefinitions"][0]
            ),
            "is duplicated",
        ),
        (
            lambda csv: csv["metadata"]["annotations"].update({"alm-examples": "["}),
            "is not valid JSON",
        ),
        (
            lambda csv: csv["metadata"]["annotations"].update({"alm-examples": "[]"}),
            "must have an example of AppWrapper",
        ),
        (
            lambda csv: csv["spec"]["customresourcedefinitions"].update(owned=[]),
            "which the CSV does not own",
        ),
    ],
)
def test_invalid_bundle_is_reported(
    bundle: list[dict[str, Any]], change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    change(csv_of(bundle))
    assert any(problem in each for each in validate.bundle_problems(bundle, ANNOTATIONS))


def contains(problem: str, problems: list[str]) -> bool:
    return any(problem in each for each in problems)


@pytest.mark.parametrize(
    "field",
    [
        "displayName",
        "version",
        "install",
        "installModes",
        "description",
        "provider",
        "maintainers",
        "icon",
    ],
)
def test_fields_that_registries_require_are_required(
    bundle: list[dict[str, Any]], field: str
) -> None:
    del csv_of(bundle)["spec"][field]
    assert contains(f"CSV: spec.{field} is missing", validate.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize("field", ["name", "annotations"])
def test_metadata_of_the_csv_is_required(bundle: list[dict[str, Any]], field: str) -> None:
    del csv_of(bundle)["metadata"][field]
    assert contains(
        f"CSV: metadata.{field} is missing", validate.bundle_problems(bundle, ANNOTATIONS)
    )


def test_bundle_must_have_exactly_one_csv(bundle: list[dict[str, Any]]) -> None:
    csv = csv_of(bundle)
    assert contains("contains 2", validate.bundle_problems([*bundle, csv], ANNOTATIONS))
    others = [obj for obj in bundle if obj is not csv]
    assert contains("contains 0", validate.bundle_problems(others, ANNOTATIONS))


@pytest.mark.parametrize("field", ["name", "version", "kind"])
def test_owned_crd_needs_name_version_and_kind(bundle: list[dict[str, Any]], field: str) -> None:
    del csv_of(bundle)["spec"]["customresourcedefinitions"]["owned"][0][field]
    assert contains(f"{field} is missing", validate.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda each: each.pop("name"), "name, or spec.template.spec.containers, is missing"),
        (lambda each: each.pop("spec"), "name, or spec.template.spec.containers, is missing"),
        (
            lambda each: each["spec"]["template"]["spec"].pop("containers"),
            "spec.containers, is missing",
        ),
        (lambda each: each["spec"].pop("selector"), "its selector does not match its pods"),
        (
            lambda each: each["spec"]["template"].pop("metadata"),
            "its selector does not match its pods",
        ),
        (
            lambda each: each["spec"]["template"]["spec"].pop("serviceAccountName"),
            "has no permissions",
        ),
        (
            lambda each: each["spec"]["template"]["spec"]["containers"][0].pop("image"),
            "image None is not in",
        ),
    ],
)
def test_incomplete_deployment_is_reported(
    bundle: list[dict[str, Any]], change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    (deployment,) = csv_of(bundle)["spec"]["install"]["spec"]["deployments"]
    change(deployment)
    assert contains(problem, validate.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("type", "type: must be one of"),
        ("deploymentName", "deployment None does not exist"),
        ("sideEffects", "sideEffects: must be"),
        ("admissionReviewVersions", "admissionReviewVersions is missing"),
        ("webhookPath", "webhookPath: must start with /"),
    ],
)
def test_incomplete_webhook_is_reported(
    bundle: list[dict[str, Any]], field: str, problem: str
) -> None:
    del csv_of(bundle)["spec"]["webhookdefinitions"][0][field]
    assert contains(problem, validate.bundle_problems(bundle, ANNOTATIONS))


@pytest.mark.parametrize("name", ["mediatype", "manifests", "metadata", "package", "channels"])
def test_missing_annotation_is_reported(bundle: list[dict[str, Any]], name: str) -> None:
    key = f"operators.operatorframework.io.bundle.{name}.v1"
    others = {each: value for each, value in ANNOTATIONS.items() if each != key}
    assert validate.bundle_problems(bundle, others) == [f"annotations.yaml: {key} is missing"]


def test_bundle_of_another_format_is_reported(bundle: list[dict[str, Any]]) -> None:
    other = {**ANNOTATIONS, "operators.operatorframework.io.bundle.mediatype.v1": "plain+v0"}
    assert contains("must be registry+v1", validate.bundle_problems(bundle, other))


def graph(
    *versions: str, entries: list[dict[str, Any]], channel: str = "stable-v1"
) -> list[dict[str, Any]]:
    """Return a catalog whose bundles all serve the same kind."""
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


ENTRIES: list[dict[str, Any]] = [
    {"name": "op.v1.0.0"},
    {"name": "op.v1.0.1", "skips": ["op.v1.0.0"]},
    {"name": "op.v1.1.0", "replaces": "op.v1.0.1"},
]
VALID_CATALOG = graph("1.0.0", "1.0.1", "1.1.0", entries=ENTRIES)


def test_valid_upgrade_graph_has_no_problems() -> None:
    assert validate.catalog_problems(VALID_CATALOG, VALID_CATALOG) == []


@pytest.mark.parametrize(
    ("catalog", "problem"),
    [
        (
            graph("1.0.0", "1.1.0", entries=[{"name": "op.v1.0.0"}, {"name": "op.v1.1.0"}]),
            "must have one head",
        ),
        (
            graph(
                "1.0.0",
                entries=[{"name": "op.v1.0.0"}, {"name": "op.v1.2.0", "replaces": "op.v1.0.0"}],
            ),
            "bundle does not exist",
        ),
        (graph("1.0.0", "1.0.1", "1.1.0", entries=ENTRIES[:2]), "is in no channel"),
        (
            graph("1.0.0", "1.0.1", entries=ENTRIES[:2], channel="stable-v2"),
            "belongs to another major version",
        ),
        (graph("1.0", entries=[{"name": "op.v1.0"}]), "must be a semantic version"),
        (
            graph(
                "1.0.0",
                "1.1.0",
                entries=[{"name": "op.v1.0.0", "replaces": "op.v1.1.0"}, {"name": "op.v1.1.0"}],
            ),
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
def test_invalid_upgrade_graph_is_reported(catalog: list[dict[str, Any]], problem: str) -> None:
    assert any(problem in each for each in validate.catalog_problems(catalog))


@pytest.mark.parametrize(
    ("index", "field"),
    [
        *((0, field) for field in ("name", "defaultChannel")),
        *((1, field) for field in ("name", "package", "entries")),
        *((2, field) for field in ("name", "package", "image", "properties")),
    ],
)
def test_fields_of_a_catalog_are_required(index: int, field: str) -> None:
    catalog = copy.deepcopy(VALID_CATALOG)
    del catalog[index][field]
    assert contains(f"{field} is missing", validate.catalog_problems(catalog))


def test_catalog_has_one_package_and_only_documents_of_it() -> None:
    catalog = copy.deepcopy(VALID_CATALOG)
    assert contains(
        "must have one olm.package, has 2", validate.catalog_problems([*catalog, catalog[0]])
    )
    assert contains("must have one olm.package, has 0", validate.catalog_problems(catalog[1:]))
    catalog[1]["package"] = catalog[2]["package"] = "other"
    problems = validate.catalog_problems(catalog)
    assert contains("channel stable-v1: package: other does not exist", problems)
    assert contains("bundle op.v1.0.0: package: other does not exist", problems)
    assert contains(
        "schema 'olm.bundel'", validate.catalog_problems([*VALID_CATALOG, {"schema": "olm.bundel"}])
    )


def test_entries_need_a_name_and_bundles_one_version() -> None:
    catalog = copy.deepcopy(VALID_CATALOG)
    del catalog[1]["entries"][1]["name"]
    catalog[2]["properties"] = catalog[2]["properties"][1:]
    problems = validate.catalog_problems(catalog)
    assert contains("entries[1]: name is missing", problems)
    assert contains("must have one olm.package property, has 0", problems)
    catalog[0]["defaultChannel"] = "stable-v9"
    assert contains("channel stable-v9 does not exist", validate.catalog_problems(catalog))


def test_dropped_bundle_and_removed_version_are_reported() -> None:
    shorter = graph("1.1.0", entries=[{"name": "op.v1.1.0"}])
    assert any(
        "op.v1.0.0: was in a previous catalog" in each
        for each in validate.catalog_problems(shorter, VALID_CATALOG)
    )
    breaking = copy.deepcopy(VALID_CATALOG)
    breaking[-1]["properties"][1]["value"]["version"] = "v2"
    assert any("needs a new major version" in each for each in validate.catalog_problems(breaking))


def test_channels_equal_the_graph_that_opm_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    released = {
        "0.9.0": "stable",
        "1.0.0": "stable",
        "1.0.1": "stable",
        "1.1.0": "fast",
        "1.2.0": "candidate",
    }
    monkeypatch.setattr(
        channels, "releases", lambda: [(Version.parse(key), name) for key, name in released.items()]
    )
    found = {channel["name"]: channel["entries"] for channel in channels.channels()}
    assert list(found) == [
        "stable-v0",
        "stable-v1",
        "fast-v0",
        "fast-v1",
        "candidate-v0",
        "candidate-v1",
    ]
    name = "codeflare-operator.v"
    assert found["stable-v1"] == [
        {"name": f"{name}1.0.0"},
        {"name": f"{name}1.0.1", "skips": [f"{name}1.0.0"]},
    ]
    assert found["fast-v1"][-1] == {
        "name": f"{name}1.1.0",
        "replaces": f"{name}1.0.1",
        "skips": [f"{name}1.0.0"],
    }
    assert found["candidate-v1"][-1]["replaces"] == f"{name}1.1.0"
    assert found["candidate-v1"][-1]["skips"] == [f"{name}1.0.0", f"{name}1.0.1"]
    assert channels.default_channel() == "stable-v1"
    released["2.0.0-rc.1"] = "candidate"
    assert channels.default_channel() == "stable-v1"  # a candidate is never the default


# The permissions that OLM v1 requires of the installing service account, derived as in
# https://operator-framework.github.io/operator-controller/howto/derive-service-account


def installer() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the installer's rules, and the ClusterExtension that it installs."""
    objects = {
        obj["kind"]: obj
        for obj in yaml.safe_load_all((ROOT / "config/olm/clusterextension.yaml").read_text())
    }
    extension, account = objects["ClusterExtension"], objects["ServiceAccount"]
    assert extension["spec"]["serviceAccount"]["name"] == account["metadata"]["name"]
    assert extension["spec"]["namespace"] == account["metadata"]["namespace"]
    assert objects["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", **account["metadata"]}
    ]
    assert (
        objects["ClusterRoleBinding"]["roleRef"]["name"]
        == objects["ClusterRole"]["metadata"]["name"]
    )
    return objects["ClusterRole"]["rules"], extension


def required(bundle: list[dict[str, Any]], extension: str) -> set[Permission]:
    """Return the permissions that OLM v1 needs to install and upgrade the bundle and to grant its permissions."""
    csv = csv_of(bundle)
    kinds = {RESOURCES[obj["kind"]] for obj in bundle if obj is not csv}
    found = {(*resource, "", verb) for resource in kinds | set(CREATED_BY_OLM) for verb in MANAGE}
    install = csv["spec"]["install"]["spec"]
    for each in (*install["permissions"], *install["clusterPermissions"]):
        found |= permissions(each["rules"])
    for obj in bundle:
        if obj["kind"] in ("ClusterRole", "Role"):
            found |= permissions(obj["rules"])
    return found | {
        ("olm.operatorframework.io", "clusterextensions/finalizers", extension, "update")
    }


def test_installer_has_all_permissions_that_the_bundle_requires(
    bundle: list[dict[str, Any]],
) -> None:
    rules, extension = installer()
    wanted = required(bundle, extension["metadata"]["name"])
    assert missing(permissions(rules), wanted) == set()
    assert not {"*", "escalate", "bind"} & {
        part for permission in permissions(rules) for part in permission
    }
    for permission in wanted:  # removing any of them is noticed
        group, resource, _, verb = permission
        assert permission in missing(
            permissions(rules) - {permission, (group, resource, "", verb)}, wanted
        )


def test_installer_has_no_permissions_on_other_resources(bundle: list[dict[str, Any]]) -> None:
    rules, extension = installer()
    wanted = required(bundle, extension["metadata"]["name"])
    assert {permission[:2] for permission in missing(wanted, permissions(rules))} == set()


def test_subscription_and_extension_use_channels_of_the_catalog() -> None:
    documents = list(
        yaml.safe_load_all((ROOT / "deploy/catalog/codeflare-operator/catalog.yaml").read_text())
    )
    (package,) = [each for each in documents if each["schema"] == "olm.package"]
    offered = {each["name"] for each in documents if each["schema"] == "olm.channel"}
    _, extension = installer()
    subscription = list(yaml.safe_load_all((ROOT / "config/olm/subscription.yaml").read_text()))[1]
    assert subscription["spec"]["channel"] == package["defaultChannel"]
    assert set(extension["spec"]["source"]["catalog"]["channels"]) <= offered
    assert {
        subscription["spec"]["name"],
        extension["spec"]["source"]["catalog"]["packageName"],
    } == {package["name"]}


def test_install_page_refers_to_the_generated_subscription() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert "config/olm/subscription.yaml" in page
    assert re.findall(r"(?:stable|fast|candidate)-v\d+", page) == []
