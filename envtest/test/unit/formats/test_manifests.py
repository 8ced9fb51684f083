"""Reading manifest files."""

from __future__ import annotations

from pathlib import Path

import pytest

from envtest.formats.manifests import load_crds

CRD = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def test_other_objects_next_to_a_crd_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "crd.yaml").write_text(CRD)
    (tmp_path / "other.yaml").write_text(CONFIG_MAP)
    assert [crd["metadata"]["name"] for crd in load_crds([tmp_path])] == ["a"]
    assert load_crds([]) == []


def test_source_without_any_crd_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(CONFIG_MAP)
    for source in (file, str(file), tmp_path):
        with pytest.raises(ValueError, match=r"^no CustomResourceDefinition in "):
            load_crds([source])
    with pytest.raises(
        ValueError, match=r"^no CustomResourceDefinition in an object of kind ConfigMap$"
    ):
        load_crds([{"kind": "ConfigMap"}])
    with pytest.raises(FileNotFoundError):
        load_crds([tmp_path / "missing"])


@pytest.mark.parametrize("name", ["bases", "v1"])
def test_folder_without_crds_names_its_subfolder_with_manifests(name: str, tmp_path: Path) -> None:
    bases = tmp_path / name
    (tmp_path / "a-empty").mkdir()
    bases.mkdir()
    (bases / "crd.yaml").write_text(CRD)
    with pytest.raises(ValueError, match=r"; subfolders are not read, use ") as refused:
        load_crds([str(tmp_path)])
    assert str(refused.value).endswith(str(bases))
    assert len(load_crds([bases])) == 1


def test_invalid_yaml_is_reported_with_its_line_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(f"{CONFIG_MAP.rstrip()}\n---\nkind: A\nspec: [1\nb: 2\n")
    line = len(CONFIG_MAP.rstrip().splitlines()) + 4
    with pytest.raises(ValueError, match=r"did not find expected ',' or ']'") as error:
        load_crds([file])
    assert str(error.value).startswith(f"{file}:{line}: yaml: ")
    assert "<byte string>" not in str(error.value)


def test_missing_relative_path_names_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as missing:
        load_crds(["none.yaml"])
    assert missing.value.filename == "none.yaml"
    assert missing.value.strerror is not None
    assert missing.value.strerror.endswith(f"(relative to the working directory {tmp_path})")
    with pytest.raises(FileNotFoundError) as missing:
        load_crds([tmp_path / "none.yaml"])
    assert missing.value.strerror == "No such file or directory"
