"""Which files ``envtest validate`` checks."""

from __future__ import annotations

import os
from pathlib import Path

from envtest.manifest_check.selection import select_files

FILES = {
    "a.yaml": "",
    "b.txt": "",
    ".hidden/c.yaml": "",
    "app/d.yml": "",
    "app/e.json": "",
    "chart/Chart.yaml": "",
    "chart/crds/f.yaml": "",
    "chart/templates/g.yaml": "",
    "templates/h.yaml": "",
    "overlay/kustomization.yaml": """
resources: [i.yaml, ../app]
patches: [{path: j.yaml}, {patch: "a: 1"}, 7]
patchesStrategicMerge: [k.yaml, "a: 1\\nb: 2\\n"]
configMapGenerator: [{name: a, files: [l.yaml, key=../m.yaml]}]
helmCharts: [{name: a, valuesFile: n.yaml}]
""",
    **{f"overlay/{name}.yaml": "" for name in "ijkln"},
    "m.yaml": "",
    "broken/kustomization.yaml": "a: [",
    "broken/o.yaml": "",
}


def test_templates_and_parts_of_kustomizations_are_skipped(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "loop").symlink_to(tmp_path)

    def shown(paths: list[Path]) -> list[str]:
        return sorted(str(path.relative_to(tmp_path)) for path in paths)

    selection = select_files([tmp_path])
    assert shown(selection.files) == [
        "a.yaml",
        "app/d.yml",
        "app/e.json",
        "broken/o.yaml",
        "chart/crds/f.yaml",
        "m.yaml",  # the kustomization of a folder only concerns files below it
        "overlay/i.yaml",
        "templates/h.yaml",
    ]
    reasons = {
        str(path.relative_to(tmp_path)): reason for path, reason in selection.skipped.items()
    }
    assert reasons["overlay/j.yaml"] == reasons["overlay/k.yaml"] == "a patch of a kustomization"
    assert reasons["overlay/l.yaml"] == "input of the configMapGenerator of a kustomization"
    assert "helm template" in reasons["chart/templates/g.yaml"]
    assert "kubectl kustomize" in reasons["overlay/kustomization.yaml"]


def test_named_files_are_checked_whatever_their_suffix_is(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: ./p.yaml}]")
    for name in ("p.yaml", "a.txt"):
        (tmp_path / name).touch()
    selection = select_files([tmp_path / "p.yaml", tmp_path / "a.txt", tmp_path / "missing.yaml"])
    assert [path.name for path in selection.files] == ["a.txt", "missing.yaml"]
    assert [path.name for path in selection.skipped] == ["p.yaml"]


def test_pipes_in_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    assert [file.name for file in select_files([tmp_path]).files] == ["a.yaml", "gone.yaml"]
