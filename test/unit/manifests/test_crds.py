"""All CRDs that :func:`cfo.manifests.overlays.crds` returns are part of each kind of installation."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cfo.manifests import overlays
from cfo.manifests.overlays import render
from hack.generate import helm, kustomize
from hack.generate.olm import bundle

NAME = "workqueues.example.com"
FILE = "example.com_workqueues.yaml"


@pytest.fixture(autouse=True)
def second_crd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a CRD to those of the operator."""
    own = overlays.crds()[0]
    second = yaml.safe_load(yaml.safe_dump(own))
    second["metadata"]["name"] = NAME
    second["spec"] |= {
        "group": "example.com",
        "names": {
            "kind": "WorkQueue",
            "listKind": "WorkQueueList",
            "plural": "workqueues",
            "singular": "workqueue",
        },
    }
    monkeypatch.setattr(overlays, "crds", lambda: [own, second])


def name_in(text: str) -> Any:
    return yaml.safe_load(text)["metadata"]["name"]


def test_rendered_objects_contain_each_crd() -> None:
    names = {
        obj["metadata"]["name"] for obj in render() if obj["kind"] == "CustomResourceDefinition"
    }
    assert names == {"appwrappers.workload.codeflare.dev", NAME}


def test_kustomize_has_a_file_for_each_crd() -> None:
    files = kustomize.files()
    assert name_in(files[f"config/crd/bases/{FILE}"]) == NAME
    resources = yaml.safe_load(files["config/crd/kustomization.yaml"])["resources"]
    assert resources == ["bases/workload.codeflare.dev_appwrappers.yaml", f"bases/{FILE}"]


def test_chart_has_a_file_for_each_crd() -> None:
    files = helm.files()
    assert name_in(files[f"{helm.CHART}/crds/{FILE}"]) == NAME
    assert f"{helm.CHART}/crds/workload.codeflare.dev_appwrappers.yaml" in files


def test_bundle_owns_each_crd() -> None:
    files = bundle.files()
    assert name_in(files[f"deploy/bundle/manifests/{FILE}"]) == NAME
    csv = yaml.safe_load(
        files[f"deploy/bundle/manifests/{bundle.PACKAGE}.clusterserviceversion.yaml"]
    )
    owned = csv["spec"]["customresourcedefinitions"]["owned"]
    assert [(crd["kind"], crd["displayName"]) for crd in owned] == [
        ("AppWrapper", "App Wrapper"),
        ("WorkQueue", "Work Queue"),
    ]
    assert all(crd["description"] for crd in owned)
