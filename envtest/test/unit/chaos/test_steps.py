"""Scenarios from files and folders, and what is rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envtest.chaos.steps import ScenarioError, load_scenario, parse_scenario

TOY = "apiVersion: example.com/v1\nkind: Toy\nmetadata: {name: bear}\n"


def test_folder_of_manifests_is_applied_file_by_file_and_then_deleted(tmp_path: Path) -> None:
    (tmp_path / "20-b.yaml").write_text(TOY.replace("bear", "cat"))
    (tmp_path / "10-a.yaml").write_text(TOY)
    (tmp_path / "README.md").write_text("text")
    steps = load_scenario(tmp_path).steps
    assert [step.name for step in steps] == ["apply 10-a.yaml", "apply 20-b.yaml", "delete all"]
    assert [obj["metadata"]["name"] for obj in steps[-1].objects] == ["cat", "bear"]


def test_file_has_steps_with_files_objects_and_references(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(TOY)
    (tmp_path / "scenario.yaml").write_text(
        "steps:\n"
        "- apply: toy.yaml\n"
        "- name: grow\n"
        "  patch: {apiVersion: a.io/v1, kind: Toy, name: bear, subresource: status, patch: {status: {size: 2}}}\n"
        "- advance: 60\n"
        "- delete: [toy.yaml, {apiVersion: v1, kind: Pod, name: p, namespace: ns}]\n"
    )
    apply, patch, advance, delete = load_scenario(tmp_path).steps
    assert (apply.name, apply.objects[0]["kind"]) == ("apply toy.yaml", "Toy")
    assert (patch.name, patch.subresource, patch.patch) == (
        "grow",
        "status",
        {"status": {"size": 2}},
    )
    assert (advance.name, advance.seconds) == ("advance 60 s", 60.0)
    assert [obj["metadata"] for obj in delete.objects] == [
        {"name": "bear"},
        {"name": "p", "namespace": "ns"},
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "steps: must be a list"),
        ({"steps": {}}, "steps: must be a list"),
        ({"steps": ["x"]}, r"steps\[0\]: must be an object"),
        ({"steps": [{"apply": "a", "delete": "b"}]}, "exactly one action"),
        ({"steps": [{"name": "a"}]}, "exactly one action"),
        ({"steps": [{"create": {}}]}, "unknown field 'create'"),
        ({"steps": [{"advance": -1}]}, "advance: -1: must be a number of seconds"),
        ({"steps": [{"advance": True}]}, "must be a number of seconds"),
        (
            {"steps": [{"apply": {"kind": "Pod"}}]},
            "apiVersion, kind and metadata.name are required",
        ),
        ({"steps": [{"patch": {"kind": "Pod"}}]}, "must have apiVersion, kind, name and patch"),
        ({"steps": [{"apply": 1}]}, "must be a file, an object, or a list of them"),
        ({"steps": [{"apply": "a.yaml"}]}, "files are not available here"),
        ({"steps": [{"advance": 1}] * 101}, "at most 100"),
    ],
)
def test_invalid_scenarios_are_rejected(document: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(document)


def test_folder_without_manifests_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="contains no manifests"):
        load_scenario(tmp_path)


def test_huge_and_malformed_files_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("#" * (1 << 21))
    with pytest.raises(ScenarioError, match="must not be larger"):
        load_scenario(file)
    file.write_text("steps: [")
    with pytest.raises(ScenarioError, match=r"scenario\.yaml"):
        load_scenario(file)
