"""Tests of the GitHub workflows and the Makefile.

Each step of a workflow runs a make target, so that developers can run it locally as well.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.version import __version__
from hack.release import image_tags
from test.support.manifests import MAKEFILES, ROOT, make_targets
from test.support.sweeps import RUNS

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
ACTION = ROOT / "envtest" / "action.yml"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_runs_an_existing_make_target(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs
    for run in runs:
        match = re.fullmatch(r'make ([a-z0-9-]+)( \w+="\$\{\w+\}")?', run)
        assert match is not None, run
        assert match[1] in make_targets(), run


def test_arguments_of_a_dispatched_workflow_are_parsed_by_no_shell() -> None:
    texts = {path.stem: path.read_text() for path in WORKFLOWS}
    assert "inputs.arguments" in texts["release"]
    for path in WORKFLOWS:
        for job in load(path)["jobs"].values():
            for step in job["steps"]:
                assert "${{" not in step.get("run", ""), f"{path.stem}: {step}"
    for target in ("release", "release-plan"):
        assert "PWNED" not in commands(target, "ARGS=v9; echo PWNED")


def test_tests_on_all_versions_of_python_try_all_cases_of_sweeps() -> None:
    tests = load(ROOT / ".github" / "workflows" / "tests.yaml")["jobs"]["test"]
    versions = tests["strategy"]["matrix"]["python"]
    begins = {int(version.partition(".")[2]) % RUNS for version in versions}
    assert begins == set(range(RUNS))


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    lines = [line.strip() for line in path.read_text().splitlines() if re.search(r"\buses:", line)]
    assert lines
    for line in lines:
        if line == "- uses: ./envtest":  # the action of this repository
            continue
        assert re.fullmatch(r"(- )?uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_actions_have_the_same_commit_in_all_workflows() -> None:
    texts = [path.read_text() for path in (*WORKFLOWS, ACTION)]
    uses = {match for text in texts for match in re.findall(r"uses: (\S+)@(\S+) # (\S+)", text)}
    assert len(uses) == len({name for name, _, _ in uses})


HISTORY = {
    "release-stable",
    "bundle",
    "bundle-build-push",
    "catalog-build-push",
    "catalog-push",
    "dev-release",
    "olm-e2e",
    "olm-upgrade-e2e",
    "release-images",
} | {
    "release-plan",
    "release",
    "release-push",
}
"""Targets that read the tags of releases; in a shallow clone they find none and would report no problem."""


def load(path: Path) -> dict[Any, Any]:
    """Read a workflow; YAML 1.1 parses its key ``on`` as a boolean."""
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    workflow["on"] = workflow.pop(True)
    return workflow


def target_of(step: dict[str, Any]) -> str:
    return step["run"].split()[1] if "run" in step else ""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_that_read_release_tags_check_out_the_whole_history(path: Path) -> None:
    for name, job in load(path)["jobs"].items():
        if HISTORY & {target_of(step) for step in job["steps"]}:
            (checkout,) = [
                step
                for step in job["steps"]
                if step.get("uses", "").startswith("actions/checkout@")
            ]
            assert checkout.get("with", {}).get("fetch-depth") == 0, f"{path.stem}: {name}"


def test_history_lists_all_targets_that_read_release_tags() -> None:
    text = (ROOT / "hack" / "deploy.mk").read_text()
    for rule in re.split(r"\n(?=[a-z])", text):
        target, _, recipe = rule.partition(":")
        if (
            re.search(r"--released|hack\.release(\.history)?\s|git tag|git push", recipe)
            and target in make_targets()
        ):
            assert target in HISTORY, target


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_permissions_are_minimal(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    release_permissions = {
        "contents": "write",
        "id-token": "write",
        "attestations": "write",
    }  # the last two: provenance
    for job in workflow["jobs"].values():
        pushes = "release-push" in {target_of(step) for step in job["steps"]}
        deploys = any(
            step.get("uses", "").startswith("actions/deploy-pages@") for step in job["steps"]
        )
        publishes = any(
            step.get("uses", "").startswith("pypa/gh-action-pypi-publish@") for step in job["steps"]
        )
        identity = {"id-token": "write"} if publishes or deploys else {}
        pages_permissions = {"pages": "write"} if deploys else {}
        assert job.get("permissions", {}) == (
            release_permissions if pushes else pages_permissions | identity
        )
        assert not identity or not any(
            "run" in step for step in job["steps"]
        )  # none runs code of the repository


def commands(target: str, *variables: str) -> str:
    """Return the commands that a target would run, including those of other targets that it calls."""
    done = subprocess.run(
        ["make", "--dry-run", target, *variables],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode == 0, done.stderr
    return done.stdout


def pushed_images(text: str) -> set[str]:
    """Return the images that commands push."""
    lines = text.replace("\\\n", " ").splitlines()
    names = {name for line in lines for name in re.findall(r"^docker push (\S+)$", line)}
    return names | {
        name
        for line in lines
        if "buildx build --push" in line
        for name in re.findall(r"--tag (\S+)", line)
    }


def runs_on_main(step: dict[str, Any]) -> bool:
    """Return whether a push to main runs the step."""
    condition = step.get("if", "true")
    yes = (
        "true",
        "always()",
        "github.ref == 'refs/heads/main'",
        "runner.os == 'macOS'",
        "runner.os == 'Linux'",
    )
    assert condition in (*yes, "github.ref_type == 'tag'"), condition
    return condition in yes


def images_pushed_on_main(workflow: dict[Any, Any]) -> dict[str, set[str]]:
    """Return the images that each job pushes on a push to main."""
    return {
        name: {
            image
            for step in job["steps"]
            if "run" in step and runs_on_main(step)
            for image in pushed_images(commands(target_of(step), "REF=main"))
        }
        for name, job in workflow["jobs"].items()
    }


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in WORKFLOWS
        if "main" in ((load(path)["on"].get("push") or {}).get("branches") or ())
    ],
    ids=lambda path: path.stem,
)
def test_push_to_main_uses_no_release_tag_and_logs_in_only_to_push(path: Path) -> None:
    workflow = load(path)
    for name, images in images_pushed_on_main(workflow).items():
        for image in images:
            assert re.search(r":(dev|v\d+\.\d+\.\d+-dev\.\d+)$", image), (
                f"{path.stem}: {name}: {image}"
            )
        uses = {step.get("uses", "").partition("@")[0] for step in workflow["jobs"][name]["steps"]}
        assert ("docker/login-action" in uses) is bool(images), f"{path.stem}: {name}"


def test_main_is_pushed_as_dev_and_as_pre_release_in_the_dev_catalog() -> None:
    images = {
        name
        for path in WORKFLOWS
        if path.stem in ("image", "olm")
        for name in images_pushed_on_main(load(path)).popitem()[1]
    }
    assert {re.sub(r":v\d.*", "", name).rpartition("/")[2] for name in images} == {
        "codeflare-operator:dev",
        "codeflare-operator-bundle",
        "codeflare-operator-catalog:dev",
    }


def test_release_workflow_pushes_images_and_attaches_distributions() -> None:
    """A tag that a workflow pushes with its own token starts no other workflow."""
    (job,) = load(ROOT / ".github/workflows/release.yaml")["jobs"].values()
    run = [target_of(step) for step in job["steps"] if "run" in step]
    assert run == [
        *("release-plan", "base-images-check", "release", "release-push", "release-images"),
        *("test-install", "sbom", "release-draft"),
    ]
    (attestation,) = [
        step for step in job["steps"] if "attest-build-provenance" in step.get("uses", "")
    ]
    assert attestation["with"]["subject-path"] == "dist/*.whl, dist/*.tar.gz, dist/*.cdx.json"
    assert "--sbom=true --provenance=mode=max" in commands("image-push")
    assert all(
        step.get("if") == "inputs.run" for step in job["steps"] if target_of(step) in run[1:]
    )
    names = {image.rpartition("/")[2] for image in pushed_images(commands("release-images"))}
    assert names - {"codeflare-operator:stable"} == {
        f"codeflare-operator:v{__version__}",
        f"codeflare-operator-bundle:v{__version__}",
        "codeflare-operator-catalog:latest",
    }


def test_all_distributions_are_built_checked_and_attached_to_the_draft() -> None:
    recipe = commands("test-install")
    assert re.findall(r"-m build --no-isolation --outdir dist (\S+)$", recipe, re.MULTILINE) == [
        ".",
        "./envtest",
        "./handlers",
    ]
    assert recipe.index("twine check --strict dist/*.whl dist/*.tar.gz") < recipe.index(
        ".ci/test-install"
    )
    assert re.search(
        r"gh release create v\S+ --draft .*dist/\*\.whl dist/\*\.tar\.gz dist/\*\.cdx\.json$",
        commands("release-draft").replace("\\\n", ""),
        re.MULTILINE,
    )


def test_publish_workflow_uploads_the_files_of_the_release_for_a_tag() -> None:
    workflow = load(ROOT / ".github/workflows/publish.yaml")
    assert workflow["on"] == {"workflow_dispatch": None}
    download, publish = workflow["jobs"]["download"], workflow["jobs"]["publish"]
    assert [target_of(step) for step in download["steps"] if "run" in step] == ["release-download"]
    recipe = commands("release-download")
    assert recipe.index("gh release download v") < recipe.index("gh attestation verify")
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["needs"] == "download"
    assert publish["environment"]["name"] == "pypi"
    assert publish["steps"][-1]["with"] == {"attestations": True}


def test_untagged_head_is_not_pushed_as_a_release(tmp_path: Path) -> None:
    for path in (*MAKEFILES, ROOT / "cfo" / "version.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text())
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["make", "release-images"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode != 0
    assert f"release-images: HEAD is not tagged v{__version__}" in done.stderr


def test_all_workflows_exist() -> None:
    assert {path.stem for path in WORKFLOWS} == {
        "tests",
        "e2e",
        "olm",
        "image",
        "release",
        "publish",
        "stable",
        "nightly",
    }


def test_every_make_target_is_in_the_help_or_in_contributing() -> None:
    done = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 127:
        pytest.skip("make is not installed")
    assert done.returncode == 0, done.stderr
    shown = set(re.findall(r"^  ([a-z0-9-]+) ", done.stdout, re.MULTILINE))
    section = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("\n## Other targets\n")[2]
        .partition("\n## ")[0]
    )
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE)
    assert len(shown) == 10
    assert len(listed) == len(set(listed))
    assert shown | {"help"} == make_targets(MAKEFILES[0])
    assert set(listed) == make_targets(*MAKEFILES[1:])


@pytest.mark.parametrize(
    "failing",
    [[], ["cfo"], ["envtest"], ["handlers"], ["cfo", "envtest", "handlers"]],
    ids=" ".join,
)
def test_all_distributions_are_tested_and_those_with_failures_are_named(
    tmp_path: Path, failing: list[str]
) -> None:
    python, log = tmp_path / "venv" / "bin" / "python", tmp_path / "log"
    python.parent.mkdir(parents=True)
    folders = {"cfo": ROOT, "envtest": ROOT / "envtest", "handlers": ROOT / "handlers"}
    codes = [f"{folders[name]}) exit 1;;" for name in failing]
    python.write_text(f'#!/bin/sh\necho "$PWD" >>{log}\ncase $PWD in {" ".join(codes)} esac\n')
    python.chmod(0o755)
    (tmp_path / "venv" / ".installed").touch()
    arguments = ["make", "-s", "test", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert log.read_text().splitlines() == list(map(str, folders.values()))
    assert (done.returncode != 0) is bool(failing), done.stderr
    assert re.findall(r": test-(\w+)\] Error 1$", done.stderr, re.MULTILINE) == failing


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        ({}, [], "cfo run --embedded --apply config/samples"),
        (
            {},
            ["SAMPLES=all"],
            "cfo run --embedded --apply config/samples --apply config/samples/all",
        ),
        ({"NAMESPACE": "default"}, [], "cfo run"),
        ({}, ["NAMESPACE=default"], "cfo run"),
    ],
    ids=["nothing", "all samples", "namespace of the environment", "namespace of the command line"],
)
def test_make_run_uses_a_cluster_only_with_a_namespace(
    tmp_path: Path, environment: dict[str, str], arguments: list[str], expected: str
) -> None:
    command = ["make", "-n", "run", f"VENV={tmp_path}", f"--old-file={tmp_path}/.installed"]
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NAMESPACE", "MAKEFLAGS", "MAKELEVEL")  # the last two: of `make test`
    }
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=variables | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{tmp_path}/bin/{expected}"


def test_every_make_target_is_phony() -> None:
    for path in MAKEFILES:
        text = path.read_text().replace("\\\n", "")
        phony = {
            name
            for line in re.findall(r"^\.PHONY:(.*)$", text, re.MULTILINE)
            for name in line.split()
        }
        assert phony == make_targets(path), path.name


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("main", ("dev", False)),
        ("v1.10.0", ("v1.10.0", True)),
        ("v1.9.1", ("v1.9.1", False)),
        ("v1.11.0", ("v1.11.0", False)),
        ("v2.0.0-rc.1", ("v2.0.0-rc.1", False)),
    ],
)
def test_image_tag_of_a_ref(ref: str, expected: tuple[str, bool]) -> None:
    releases = {"1.9.1": "stable", "1.10.0": "stable", "1.11.0": "fast"}
    text = yaml.safe_dump(
        {"releases": [{"version": v, "channel": c} for v, c in releases.items()]}, sort_keys=False
    )
    assert (image_tags.name(ref), image_tags.is_stable(ref, text)) == expected


def test_downloaded_script_is_verified_and_runs_without_credentials() -> None:
    (job,) = load(ROOT / ".github/workflows/olm.yaml")["jobs"].values()
    steps = [target_of(step) or step["uses"].partition("@")[0] for step in job["steps"]]
    assert steps[-3:] == ["olm-e2e", "docker/login-action", "olm-upgrade-e2e"]
    recipe = (ROOT / "hack/deploy.mk").read_text().partition("\nolm-e2e:")[2].partition("\n\n")[0]
    assert (
        recipe.index("curl")
        < recipe.index("sha256sum --check")
        < recipe.index("bash build/install-olm.sh")
    )
