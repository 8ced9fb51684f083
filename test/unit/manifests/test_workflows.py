"""Workflows are thin: what they run is a make target that exists, so that it runs here as well."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.version import __version__
from test.support.manifests import ROOT, targets

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_make_target(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs
    for run in runs:
        match = re.fullmatch(r'make ([a-z0-9-]+)( \w+="\$\{\w+\}")?', run)
        assert match is not None, run
        assert match[1] in targets(), run
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step["uses"]), step


HISTORY = {"bundle", "catalog", "catalog-push", "dev-release", "olm-e2e", "olm-upgrade-e2e", "release-images"} | {
    "release-plan",
    "release",
    "release-push",
}
"""Targets that look at what was released before: in a shallow clone they would see no tags, and find all in order."""


def load(path: Path) -> dict[Any, Any]:
    """A workflow, whose key ``on`` is a truth value in YAML 1.1."""
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    workflow["on"] = workflow.pop(True)
    return workflow


def target_of(step: dict[str, Any]) -> str:
    return step["run"].split()[1] if "run" in step else ""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_that_look_at_releases_have_the_whole_history(path: Path) -> None:
    for name, job in load(path)["jobs"].items():
        if HISTORY & {target_of(step) for step in job["steps"]}:
            (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
            assert checkout.get("with", {}).get("fetch-depth") == 0, f"{path.stem}: {name}"


def test_the_targets_that_look_at_releases_are_named_here() -> None:
    text = (ROOT / "hack" / "deploy.mk").read_text()
    for rule in re.split(r"\n(?=[a-z])", text):
        target, _, recipe = rule.partition(":")
        if re.search(r"--released|hack/release|git tag|git push", recipe) and target in targets():
            assert target in HISTORY, target


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_rights_are_the_least(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        pushes = "release-push" in {target_of(step) for step in job["steps"]}
        assert job.get("permissions", {}) == ({"contents": "write"} if pushes else {})


def commands(target: str, *variables: str) -> str:
    """What a target would run, with what it hands on to other targets."""
    done = subprocess.run(
        ["make", "--dry-run", target, *variables], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode == 0, done.stderr
    return done.stdout


def pushed(text: str) -> set[str]:
    """The images that commands push."""
    lines = text.replace("\\\n", " ").splitlines()
    found = {name for line in lines for name in re.findall(r"^docker push (\S+)$", line)}
    return found | {
        name for line in lines if "buildx build --push" in line for name in re.findall(r"--tag (\S+)", line)
    }


def on_main(step: dict[str, Any]) -> bool:
    """Does the step run when main is pushed?"""
    condition = step.get("if", "true")
    assert condition in ("true", "always()", "github.ref == 'refs/heads/main'", "github.ref_type == 'tag'"), condition
    return str(condition) != "github.ref_type == 'tag'"


def pushes_of(workflow: dict[Any, Any]) -> dict[str, set[str]]:
    """The images that each job pushes when main is pushed."""
    return {
        name: {
            image
            for step in job["steps"]
            if "run" in step and on_main(step)
            for image in pushed(commands(target_of(step), "REF=main"))
        }
        for name, job in workflow["jobs"].items()
    }


@pytest.mark.parametrize(
    "path",
    [path for path in WORKFLOWS if "main" in ((load(path)["on"].get("push") or {}).get("branches") or ())],
    ids=lambda path: path.stem,
)
def test_a_push_to_main_takes_no_name_of_a_release_and_logs_in_where_it_pushes(path: Path) -> None:
    workflow = load(path)
    for name, images in pushes_of(workflow).items():
        for image in images:
            assert re.search(r":(dev|v\d+\.\d+\.\d+-dev\.\d+)$", image), f"{path.stem}: {name}: {image}"
        uses = {step.get("uses", "").partition("@")[0] for step in workflow["jobs"][name]["steps"]}
        assert ("docker/login-action" in uses) is bool(images), f"{path.stem}: {name}"


def test_main_becomes_dev_and_a_pre_release_in_the_catalog_dev() -> None:
    images = {
        name for path in WORKFLOWS if path.stem in ("image", "olm") for name in pushes_of(load(path)).popitem()[1]
    }
    assert {re.sub(r":v\d.*", "", name).rpartition("/")[2] for name in images} == {
        "codeflare-operator:dev",
        "codeflare-operator-bundle",
        "codeflare-operator-catalog:dev",
    }


def test_a_release_pushes_image_bundle_and_catalog_itself() -> None:
    """A tag that a workflow pushes with its own token starts no other workflow."""
    (job,) = load(ROOT / ".github/workflows/release.yaml")["jobs"].values()
    run = [target_of(step) for step in job["steps"] if "run" in step]
    assert run == ["release-plan", "release", "release-push", "release-images"]
    assert all(step.get("if") == "inputs.run" for step in job["steps"] if target_of(step) in run[1:])
    names = {image.rpartition("/")[2] for image in pushed(commands("release-images"))}
    assert names - {"codeflare-operator:stable"} == {
        f"codeflare-operator:v{__version__}",
        f"codeflare-operator-bundle:v{__version__}",
        "codeflare-operator-catalog:latest",
    }


def test_what_is_no_release_is_not_pushed_as_one(tmp_path: Path) -> None:
    for name in ("Makefile", "hack/deploy.mk", "cfo/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    done = subprocess.run(["make", "release-images"], cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode != 0
    assert f"release-images: what is checked out is not the release v{__version__}" in done.stderr


def test_all_that_is_promised_is_there() -> None:
    assert {path.stem for path in WORKFLOWS} == {"tests", "e2e", "olm", "image", "release", "nightly"}


def test_each_target_is_listed_and_phony() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert targets() <= listed
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "hack" / "deploy.mk").read_text().replace("\\\n", "")
    phony = {name for line in re.findall(r"^\.PHONY:(.*)$", makefiles, re.MULTILINE) for name in line.split()}
    assert listed <= phony


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("main", ["dev"]),
        ("v1.10.0", ["v1.10.0", "stable"]),
        ("v1.9.1", ["v1.9.1"]),
        ("v1.11.0", ["v1.11.0"]),
        ("v2.0.0-rc.1", ["v2.0.0-rc.1"]),
    ],
)
def test_images_get_the_names_that_the_release_process_asks_for(
    ref: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    tags = importlib.import_module("tags")
    releases = {"1.9.1": "stable", "1.10.0": "stable", "1.11.0": "fast"}
    text = yaml.safe_dump({"releases": [{"version": v, "channel": c} for v, c in releases.items()]}, sort_keys=False)
    assert tags.names(ref, text) == expected
