"""``hack/release`` on a scratch clone: what it refuses, what it plans, what it makes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cfo.version import __version__

ROOT = Path(__file__).parents[2]
FRESH = f"{sys.executable} hack/generate.py --check"
CONSISTENT = f"{sys.executable} -m pytest -q -p no:cacheprovider test/unit/manifests"
STACK = ("--sdk", "v0.31.0", "--appwrapper", "v1.1.2", "--kuberay", "v1.4.2", "--kueue", "v0.12.0")


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.test")
    done = subprocess.run(["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is in this tree, as a repository of its own with one commit, in which v0.1.0 is prepared."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    target = tmp_path / "clone"
    for name in listed.split("\0"):
        if (source := ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    unreleased(target)
    git(target, "init", "--quiet", "--initial-branch", "main")
    git(target, "config", "user.name", "Tester")
    git(target, "config", "user.email", "tester@example.test")
    subprocess.run([sys.executable, "hack/generate.py"], cwd=target, env={"PYTHONPATH": str(target)}, check=True)
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message", "All")
    note(target, "### Added\n\n- A first thing.\n")
    return target


def unreleased(root: Path) -> None:
    """Takes the tree back to before its first release, so that these tests also pass in one that was released."""
    version = root / "cfo" / "version.py"
    version.write_text(version.read_text().replace(f'"{__version__}"', '"0.1.0"'))
    stack = root / "config" / "stack.yaml"
    stack.write_text(stack.read_text().replace(f"version: v{__version__}\n", "version: v0.1.0\n", 1))
    (root / "config" / "releases.yaml").write_text("releases:\n- version: 0.1.0\n  channel: candidate\n")
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- All.\n")


def note(root: Path, text: str) -> None:
    """Tells users of something under Unreleased."""
    changelog = root / "CHANGELOG.md"
    changelog.write_text(
        f"# Changelog\n\n## Unreleased\n\n{text}"
        + changelog.read_text().partition("# Changelog\n")[2].replace("## Unreleased", "## 0.0.0", 1)
    )
    git(root, "commit", "--quiet", "--all", "--message", "Tell")


CATALOG = "catalog/codeflare-operator/catalog.yaml"


def bundles(root: Path) -> list[str]:
    blobs = yaml.safe_load_all((root / CATALOG).read_text())
    return [blob["name"].partition(".")[2] for blob in blobs if blob["schema"] == "olm.bundle"]


def release(root: Path, *arguments: str, check: str = FRESH) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "hack/release", *arguments, "--check", check],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def state(root: Path) -> tuple[str, str, str, str]:
    return (
        git(root, "rev-parse", "HEAD"),
        git(root, "tag", "--list"),
        git(root, "status", "--porcelain"),
        git(root, "worktree", "list"),
    )


def test_the_plan_is_complete_and_changes_nothing(clone: Path) -> None:
    before = state(clone)
    code, said, error = release(clone, "v0.2.0", *STACK)
    assert (code, error) == (0, "")
    for part in ("v0.2.0", "v0.31.0", "v1.1.2", "v1.4.2", "v0.12.0", "README.md", "bundle/", "catalog/", "params.env"):
        assert part in said
    assert "CHANGELOG.md" in said
    assert "Nothing was changed" in said
    assert state(clone) == before


def test_a_release_leaves_a_consistent_tree(clone: Path) -> None:
    code, said, error = release(clone, "v0.2.0", *STACK, "--run", check=CONSISTENT)
    assert (code, error) == (0, ""), said
    assert git(clone, "tag", "--list") == "v0.2.0"
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "v0.2.0^{commit}") == git(clone, "rev-parse", "HEAD")
    assert "codeflare-operator:v0.2.0\n" in (clone / "config/manager/params.env").read_text()
    readme = (clone / "README.md").read_text()
    assert "| Kueue | [v0.12.0](" in readme
    assert '__version__ = "0.2.0"' in (clone / "cfo/version.py").read_text()
    changelog = (clone / "CHANGELOG.md").read_text()
    assert changelog.index("## Unreleased") < changelog.index("## 0.2.0 - ") < changelog.index("A first thing")
    releases = yaml.safe_load((clone / "config/releases.yaml").read_text())["releases"]
    assert releases[-1] == {"version": "0.2.0", "channel": "stable"}
    assert len(releases) == 1  # what was only prepared is offered to nobody
    pulls = clone / "dist" / "release-v0.2.0"
    assert "A first thing" in (pulls / "notes.md").read_text()
    assert (
        (pulls / "opendatahub/config/manager/params.env").read_text().startswith("codeflare-operator-controller-image=")
    )
    assert not (pulls / "community-operators").exists()  # which has newer ones of the Go operator
    assert "codeflare-sdk~=0.31.0" in (pulls / "opendatahub-notebooks/pull-request.md").read_text()
    for part in (":v0.2.0", ":stable", ":dev", "push"):
        assert part in said

    # a part of the stack, then a fix for the stream before the newest
    note(clone, "### Fixed\n\n- A second thing.\n")
    assert release(clone, "v0.3.0", "--partial", "--kuberay", "v1.5.0", "--run")[0] == 0
    assert "| Kueue | [v0.12.0](" in (clone / "README.md").read_text()
    assert "| KubeRay | [v1.5.0](" in (clone / "README.md").read_text()
    git(clone, "checkout", "--quiet", "-b", "release-0.2", "v0.2.0")
    note(clone, "### Fixed\n\n- A third thing.\n")
    code, _, error = release(clone, "v0.2.1", "--partial")
    assert code == 2
    assert "needs --hotfix" in error
    code, said, error = release(clone, "v0.2.1", "--partial", "--hotfix", "--run")
    assert (code, error) == (0, "")
    assert set(git(clone, "tag", "--list").split()) == {"v0.2.0", "v0.2.1", "v0.3.0"}
    assert ":stable" not in said  # v0.3.0 keeps that name
    assert "community-operators/" not in said  # their catalog takes nothing into its middle
    assert bundles(clone) == ["v0.2.0", "v0.2.1", "v0.3.0"]  # nobody loses what was released elsewhere

    # back on the main branch: a fix for the old stream is refused, the next release has all
    git(clone, "checkout", "--quiet", "main")
    assert bundles(clone) == ["v0.2.0", "v0.3.0"]
    note(clone, "### Removed\n\n- A thing.\n")
    code, _, error = release(clone, "v0.2.2", "--partial", "--hotfix")
    assert code == 2
    assert "this branch is at v0.3.0" in error
    code, said, error = release(clone, "v1.0.0", "--partial", "--run")
    assert (code, error) == (0, "")
    assert bundles(clone) == ["v0.2.0", "v0.2.1", "v0.3.0", "v1.0.0"]
    catalog = list(yaml.safe_load_all((clone / CATALOG).read_text()))
    channels = {blob["name"]: blob["entries"] for blob in catalog if blob["schema"] == "olm.channel"}
    name = "codeflare-operator.v"
    assert channels["stable-v0"] == [
        {"name": f"{name}0.2.0"},
        {"name": f"{name}0.2.1", "skips": [f"{name}0.2.0"]},
        {"name": f"{name}0.3.0", "replaces": f"{name}0.2.1", "skips": [f"{name}0.2.0"]},
    ]
    assert channels["stable-v1"] == [{"name": f"{name}1.0.0"}]
    note(clone, "### Removed\n\n- Another thing.\n")
    code, _, error = release(clone, "v1.1.0", "--partial", "--run")
    assert code == 2
    assert "needs v2.0.0" in error
    code, said, error = release(clone, "v2.0.0", "--partial", "--run")
    assert (code, error) == (0, "")
    sent = clone / "dist" / "release-v2.0.0" / "community-operators"
    assert "v2.0.0" in (sent / "pull-request.md").read_text()
    (version,) = (sent / "operators" / "codeflare-operator").iterdir()
    csv = yaml.safe_load((version / "manifests/codeflare-operator.clusterserviceversion.yaml").read_text())
    assert csv["metadata"]["annotations"]["olm.skipRange"] == ">=1.0.0 <2.0.0"
    assert "replaces" not in csv["spec"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("1.2", *STACK), "'1.2': must be a semantic version"),
        (("v01.2.3", *STACK), "'v01.2.3': must be a semantic version"),
        (("v0.0.9", *STACK), "is older than v0.1.0"),
        (("v0.2.0", *STACK[:-2]), "--kueue: the version of Kueue is missing"),
        (("v0.2.0", *STACK[:-1], "latest"), "--kueue 'latest': must be a semantic version"),
        (("v0.2.0", *STACK[:-1], "v0.1.0"), "is older than"),
        (("v0.2.0-rc.1", *STACK, "--channel", "stable"), "only goes to candidate"),
        (("v0.9.1", *STACK, "--hotfix"), "there is no release v0.9.z to fix"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_changes(clone: Path, arguments: tuple[str, ...], reason: str) -> None:
    before = state(clone)
    code, _, error = release(clone, *arguments, "--run")
    assert code == 2
    assert reason in error
    assert len(error.strip().splitlines()) == 1
    assert state(clone) == before


def test_a_dirty_tree_a_failing_check_and_a_used_version_are_refused(clone: Path) -> None:
    before = state(clone)
    code, _, error = release(clone, "v0.2.0", *STACK, "--run", check="sh -c 'echo broken; exit 3'")
    assert code == 2
    assert "check failed: sh -c" in error
    assert "broken" in error
    assert state(clone) == before
    stack = (clone / "config/stack.yaml").read_text()
    (clone / "config/stack.yaml").write_text(stack.replace("name: Kueue", "name: Queue"))
    code, _, error = release(clone, "v0.2.0", *STACK, "--run")
    assert code == 2
    assert "there is no Kueue" in error
    (clone / "config/stack.yaml").write_text(stack)
    (clone / "README.md").write_text("changed")
    code, _, error = release(clone, "v0.2.0", *STACK, "--run")
    assert code == 2
    assert "the tree is dirty: README.md" in error
    git(clone, "checkout", "--quiet", "README.md")
    git(clone, "tag", "v0.2.0")
    code, _, error = release(clone, "v0.2.0", *STACK, "--run")
    assert code == 2
    assert "has been released already" in error


KUEUE = {"name": "Kueue", "version": "v0.11.6", "releases": "https://example.test/"}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config/stack.yaml", "components: [", "config/stack.yaml: line 2: is no YAML"),
        ("config/stack.yaml", "", "components: must be a list"),
        ("config/stack.yaml", "components: 3", "components: must be a list"),
        ("config/stack.yaml", "components: [{name: Kueue}]", "components[0]: must have name, version, releases"),
        ("config/stack.yaml", yaml.safe_dump({"components": [KUEUE, KUEUE]}), "Kueue: is there twice"),
        (
            "config/stack.yaml",
            yaml.safe_dump({"components": [{**KUEUE, "version": "1"}]}),
            "components[0].version: '1'",
        ),
        ("config/releases.yaml", "x: [", "config/releases.yaml: line 2: is no YAML"),
        ("config/releases.yaml", "releases: [{version: 1.0.0, channel: x}]", "releases[0]: channel 'x'"),
        ("config/releases.yaml", "releases: [{version: 0.0.1, channel: fast}]", "there is no tag v0.0.1"),
        (CATALOG, "x: [", "catalog.yaml: line 2: is no YAML"),
        ("cfo/version.py", "", "cfo/version.py: there is no __version__"),
        ("cfo/version.py", '__version__ = "x"\n', "__version__ 'x': must be a semantic version"),
        ("README.md", "x", "README.md: <!-- Compatibility Matrix start -->"),
        ("CHANGELOG.md", "x", "CHANGELOG.md: there is no heading"),
    ],
)
def test_a_malformed_file_is_one_line_and_nothing_changes(clone: Path, name: str, content: str, reason: str) -> None:
    (clone / name).write_text(content + "\n" if content else "")
    git(clone, "commit", "--quiet", "--all", "--message", "Break")
    before = state(clone)
    code, _, error = release(clone, "v0.2.0", *STACK, "--run")
    assert code == 2
    assert reason in error
    assert len(error.strip().splitlines()) == 1
    assert state(clone) == before


@pytest.mark.parametrize(
    ("check", "reason"),
    [("no-such-command", "No such file"), ('"', "No closing quotation"), ("", "the command is empty")],
)
def test_a_check_that_cannot_run_is_told(clone: Path, check: str, reason: str) -> None:
    before = state(clone)
    code, _, error = release(clone, "v0.2.0", *STACK, "--run", check=check)
    assert code == 2
    assert reason in error
    assert len(error.strip().splitlines()) == 1
    assert state(clone) == before
