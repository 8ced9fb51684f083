"""The OLM bundle and catalog are valid, and the validator sees what is not."""

from __future__ import annotations

import copy
import importlib
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


def test_missing_annotations_are_told(validator: Any, bundle: list[dict[str, Any]]) -> None:
    assert any("package.v1 is missing" in each for each in validator.bundle_problems(bundle, {}))


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


LINE = [
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
