"""Tests of ``python -m hack.release`` in a scratch clone: the plan, a release, and the requests that it rejects."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cfo.version import __version__
from hack.files import ToolError
from hack.generate.matrix import readme
from hack.release import command
from hack.release.command import main
from hack.release.request import Request
from test.support.manifests import kustomize, load_all

ROOT = Path(__file__).parents[2]
FRESH = f"{sys.executable} -m hack.generate --check"
NEW_VERSION = (
    f"{sys.executable} -c 'from cfo.version import __version__; assert __version__ == \"0.2.0\"'"
)
"""A check that passes only in the tree of the release v0.2.0."""
VERSION_FILES = (
    "cfo/version.py",
    "envtest/src/envtest/version.py",
    "handlers/src/cfo_handlers/version.py",
    "pyproject.toml",
    "handlers/pyproject.toml",
)
SOURCES_OF_GENERATED_FILES = (*VERSION_FILES, "config/stack.yaml", "config/releases.yaml")
"""Those of the files that ``undo_releases`` changes."""
FIRST_RELEASE = {"releases": [{"version": "0.1.0", "channel": "candidate"}]}
STACK = ("--sdk", "v0.41.0", "--appwrapper", "v1.2.2", "--kuberay", "v1.7.2", "--kueue", "v0.20.0")


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.test")
    done = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy this tree without its tests into a new repository with two commits, which is prepared for v0.1.0."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    target = tmp_path_factory.mktemp("prepared") / "clone"
    for name in listed.split("\0"):
        source = ROOT / name
        if source.is_file() and not name.startswith("test/"):  # a quarter of the files
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    git(target, "init", "--quiet", "--initial-branch", "main")
    git(target, "config", "user.name", "Tester")
    git(target, "config", "user.email", "tester@example.test")
    git(target, "add", "--all")
    undo_releases(target)
    if git(target, "diff", "--name-only", "--", *SOURCES_OF_GENERATED_FILES):
        subprocess.run(
            [sys.executable, "-m", "hack.generate"],
            cwd=target,
            env={"PYTHONPATH": str(target)},
            check=True,
        )
    git(target, "add", "--all")
    git(target, "commit", "--quiet", "--message", "All")
    note(target, "### Added\n\n- A first thing.\n")
    return target


@pytest.fixture
def clone(prepared: Path, tmp_path: Path) -> Path:
    """Return a copy of the prepared repository that a test may change."""
    subprocess.run(
        ["cp", "-a", prepared, tmp_path / "clone"], check=True
    )  # ten times as fast as shutil.copytree
    return tmp_path / "clone"


@pytest.fixture
def shared_clone(prepared: Path) -> Iterator[Path]:
    """Return the prepared repository itself, and undo what a test commits to its branch."""
    head = git(prepared, "rev-parse", "HEAD")
    yield prepared
    git(prepared, "reset", "--quiet", "--hard", head)
    assert state(prepared)[1:3] == ("", "")


def undo_releases(root: Path) -> None:
    """Reset the tree to before its first release, so that these tests also pass after one."""
    for name in VERSION_FILES:
        path = root / name
        path.write_text(
            path.read_text()
            .replace(f'"{__version__}"', '"0.1.0"')
            .replace(f"=={__version__}", "==0.1.0")
        )
    stack = root / "config" / "stack.yaml"
    stack.write_text(
        stack.read_text().replace(f"version: v{__version__}\n", "version: v0.1.0\n", 1)
    )
    releases = root / "config" / "releases.yaml"
    if yaml.safe_load(releases.read_text()) != FIRST_RELEASE:
        releases.write_text(yaml.safe_dump(FIRST_RELEASE))
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- All.\n")
    for folder in ("envtest", "handlers"):
        (root / folder / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")


def note(root: Path, text: str, name: str = "CHANGELOG.md") -> None:
    """Replace the section Unreleased of a changelog, and commit."""
    changelog = root / name
    changelog.write_text(
        f"# Changelog\n\n## Unreleased\n\n{text}"
        + changelog.read_text()
        .partition("# Changelog\n")[2]
        .replace("## Unreleased", "## 0.0.0", 1)
    )
    git(root, "commit", "--quiet", "--all", "--message", "Note")


def versions(root: Path) -> list[str]:
    """Return the line with the version in each of ``VERSION_FILES``."""
    pattern = re.compile(r'__version__ = ".+"|"(?:envtest|codeflare-operator)==[^"]+"')
    return [
        match.group()
        for name in VERSION_FILES
        if (match := pattern.search((root / name).read_text()))
    ]


CATALOG = "deploy/catalog/codeflare-operator/catalog.yaml"
CSV = "deploy/bundle/manifests/codeflare-operator.clusterserviceversion.yaml"


def bundles(root: Path) -> list[str]:
    blobs = load_all((root / CATALOG).read_text())
    return [blob["name"].partition(".")[2] for blob in blobs if blob["schema"] == "olm.bundle"]


def release(root: Path, *arguments: str, check: str = FRESH) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hack.release", *arguments, "--check", check],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def rejected(
    root: Path, capsys: pytest.CaptureFixture[str], *arguments: str, check: str = FRESH
) -> str:
    """Request a release in this process, which must change nothing; return its only line of error output."""
    before = state(root)
    try:
        code = main([*arguments, "--run", "--check", check], root)
    except SystemExit as stopped:  # of the parser
        code = stopped.code
    error = capsys.readouterr().err
    assert code == 2, error
    (line,) = error.splitlines()
    assert state(root) == before
    return line


def state(root: Path) -> tuple[str, str, str, str]:
    return (
        git(root, "rev-parse", "HEAD"),
        git(root, "tag", "--list"),
        git(root, "status", "--porcelain"),
        git(root, "worktree", "list"),
    )


def write_readme(tree: Path, _: Request) -> list[str]:
    """Change a file in the tree of a release; to generate all files takes much longer."""
    (tree / "README.md").write_text("released")
    git(tree, "add", "README.md")
    return ["README.md"]


def test_plan_changes_nothing(
    shared_clone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "write", write_readme)
    before = state(shared_clone)
    code = main(["v0.2.0", *STACK, "--check", FRESH], shared_clone)
    output, error = capsys.readouterr()
    assert (code, error) == (0, "")
    assert output.startswith("Plan of the release v0.2.0, ")
    assert "Nothing was changed" in output
    assert state(shared_clone) == before


def plan_in(output: str) -> str:
    """Return the plan in the output of a release, which ends where the checks begin."""
    plan, found, _ = output.partition("\nRunning check: ")
    assert found
    return plan


def test_release_leaves_a_consistent_tree(clone: Path) -> None:
    code, output, error = release(clone, "v0.2.0", *STACK, "--run", check=NEW_VERSION)
    assert (code, error) == (0, ""), output
    plan = plan_in(output)
    versions_of_the_stack = ("v0.2.0", "v0.41.0", "v1.2.2", "v1.7.2", "v0.20.0")
    changed_files = ("README.md", "CHANGELOG.md", "bundle/", "catalog/", "params.env")
    for part in (*versions_of_the_stack, *changed_files, *VERSION_FILES):
        assert part in plan
    assert git(clone, "tag", "--list") == "v0.2.0"
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "v0.2.0^{commit}") == git(clone, "rev-parse", "HEAD")
    assert "codeflare-operator:v0.2.0\n" in (clone / "config/manager/params.env").read_text()
    assert "| Kueue | [v0.20.0](" in (clone / "README.md").read_text()
    csv = yaml.safe_load((clone / CSV).read_text())
    assert csv["metadata"]["name"] == "codeflare-operator.v0.2.0"
    assert versions(clone) == [
        '__version__ = "0.2.0"',
        '__version__ = "0.2.0"',
        '__version__ = "0.2.0"',
        '"envtest==0.2.0"',
        '"codeflare-operator==0.2.0"',
    ]
    changelog = (clone / "CHANGELOG.md").read_text()
    assert (
        changelog.index("## Unreleased")
        < changelog.index("## 0.2.0 - ")
        < changelog.index("A first thing")
    )
    assert "0.2.0" not in (clone / "envtest/CHANGELOG.md").read_text()  # it lists no changes
    releases = yaml.safe_load((clone / "config/releases.yaml").read_text())["releases"]
    assert releases[-1] == {"version": "0.2.0", "channel": "stable"}
    assert len(releases) == 1  # a prepared version that was not released is not offered
    pulls = clone / "dist" / "release-v0.2.0"
    assert "A first thing" in (pulls / "notes.md").read_text()
    assert (
        (pulls / "opendatahub/config/manager/params.env")
        .read_text()
        .startswith("codeflare-operator-controller-image=")
    )
    # what Open Data Hub's operator renders
    for overlay, source in (("default", "odh"), ("base", "default"), ("e2e", "e2e")):
        built = kustomize(pulls / "opendatahub/config" / overlay)
        assert built == kustomize(clone / "config" / source)
    assert not (
        pulls / "community-operators"
    ).exists()  # which has newer releases of the Go operator
    assert "codeflare-sdk~=0.41.0" in (pulls / "opendatahub-notebooks/pull-request.md").read_text()
    texts = [path.read_text() for path in sorted(pulls.glob("*/pull-request.md"))]
    assert len(texts) == 3
    for text in texts:
        assert ": branch `codeflare-v0.2.0` onto `main`." in text
    assert '-    "codeflare-sdk~=0.40.1",\n+    "codeflare-sdk~=0.41.0",\n' in texts[1]
    for part in (":v0.2.0", ":dev", "push"):
        assert part in output
    # :stable moves by a second command, after the pull requests
    assert "codeflare-operator:stable" not in output
    assert output.index("open the pull requests") < output.index("make release-stable ")


@pytest.mark.nightly
def test_sequence_of_releases_and_hotfixes_leaves_a_consistent_tree(clone: Path) -> None:
    assert release(clone, "v0.2.0", *STACK, "--run", check="true")[0] == 0

    # a partial release of the stack, then a hotfix for the previous stream
    note(clone, "### Fixed\n\n- A second thing.\n", "envtest/CHANGELOG.md")
    assert (
        release(clone, "v0.3.0", "--partial", "--kuberay", "v1.8.0", "--run", check="true")[0] == 0
    )
    changelog = (clone / "envtest/CHANGELOG.md").read_text()
    assert (
        changelog.index("## Unreleased")
        < changelog.index("## 0.3.0 - ")
        < changelog.index("A second thing")
    )
    assert "## 0.3.0" not in (clone / "CHANGELOG.md").read_text()
    notes = (clone / "dist/release-v0.3.0/notes.md").read_text()
    assert notes.index("## envtest") < notes.index("A second thing")
    assert "| Kueue | [v0.20.0](" in (clone / "README.md").read_text()
    assert "| KubeRay | [v1.8.0](" in (clone / "README.md").read_text()
    git(clone, "checkout", "--quiet", "-b", "release-0.2", "v0.2.0")
    note(clone, "### Fixed\n\n- A third thing.\n")
    code, _, error = release(clone, "v0.2.1", "--partial")
    assert code == 2
    assert "needs --hotfix" in error
    code, output, error = release(clone, "v0.2.1", "--partial", "--hotfix", "--run")
    assert (code, error) == (0, "")
    assert set(git(clone, "tag", "--list").split()) == {"v0.2.0", "v0.2.1", "v0.3.0"}
    assert "release-stable" not in output  # that stays v0.3.0
    assert "community-operators/" not in output  # their catalog only appends
    assert bundles(clone) == ["v0.2.0", "v0.2.1", "v0.3.0"]  # releases of other branches are kept

    # back on main: a hotfix of the old stream is rejected, and the next release contains all bundles
    git(clone, "checkout", "--quiet", "main")
    assert bundles(clone) == ["v0.2.0", "v0.3.0"]
    note(clone, "### Removed\n\n- A thing.\n")
    code, _, error = release(clone, "v0.2.2", "--partial", "--hotfix")
    assert code == 2
    assert "this branch is at v0.3.0" in error
    code, output, error = release(clone, "v1.0.0", "--partial", "--run", check="true")
    assert (code, error) == (0, "")
    assert bundles(clone) == ["v0.2.0", "v0.2.1", "v0.3.0", "v1.0.0"]
    catalog = load_all((clone / CATALOG).read_text())
    channels = {
        blob["name"]: blob["entries"] for blob in catalog if blob["schema"] == "olm.channel"
    }
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
    code, output, error = release(clone, "v2.0.0", "--partial", "--run")
    assert (code, error) == (0, "")
    sent = clone / "dist" / "release-v2.0.0" / "community-operators"
    assert "v2.0.0" in (sent / "pull-request.md").read_text()
    (version,) = (sent / "operators" / "codeflare-operator").iterdir()
    csv = yaml.safe_load(
        (version / "manifests/codeflare-operator.clusterserviceversion.yaml").read_text()
    )
    assert csv["metadata"]["annotations"]["olm.skipRange"] == ">=1.0.0 <2.0.0"
    assert "replaces" not in csv["spec"]
    assert stack_images(clone) == {
        "1.1.0": "v0.2.0",
        "1.2.0": "v0.3.0",
        "1.3.0": "v1.0.0",
        "1.4.0": "v2.0.0",
        "2.14.0": "v0.2.0",
        "2.15.0": "v0.3.0",
        "2.16.0": "v1.0.0",
        "2.17.0": "v2.0.0",
    }


def stack_images(root: Path) -> dict[str, str]:
    """Return the version of each bundle for InferenceStacks, and the tag of the operator's image in it."""
    blobs = load_all((root / "deploy/inference-stack/catalog/catalog.yaml").read_text())
    return {
        blob["name"].partition(".v")[2]: blob["relatedImages"][1]["image"].rpartition(":")[2]
        for blob in blobs
        if blob["schema"] == "olm.bundle"
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("1.2", *STACK), "'1.2': must be a semantic version"),
        (("v01.2.3", *STACK), "'v01.2.3': must be a semantic version"),
        (("v0.0.9", *STACK), "older than v0.1.0"),
        (("v0.2.0", *STACK[:-2]), "--kueue: the version of Kueue is missing"),
        (("v0.2.0", *STACK[:-1], "latest"), "--kueue 'latest': must be a semantic version"),
        (("v0.2.0", *STACK[:-1], "v0.1.0"), "older than"),
        (("v0.2.0-rc.1", *STACK, "--channel", "stable"), "must be in the channel candidate"),
        (("v0.2.0-preview.1", *STACK), "a pre-release must be alpha.N, beta.N, rc.N or dev.N"),
        (("v0.9.1", *STACK, "--hotfix"), "no release v0.9.z exists"),
    ],
)
def test_invalid_arguments_are_one_line_and_change_nothing(
    shared_clone: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    assert reason in rejected(shared_clone, capsys, *arguments)


def test_failing_check_missing_component_dirty_tree_and_released_version_are_rejected(
    clone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "write", write_readme)
    error = rejected(clone, capsys, "v0.2.0", *STACK, check="sh -c 'cat README.md; exit 3'")
    assert "check failed: sh -c" in error
    assert "released" in error
    stack = (clone / "config/stack.yaml").read_text()
    (clone / "config/stack.yaml").write_text(stack.replace("name: Kueue", "name: Queue"))
    assert "components: Kueue is missing" in rejected(clone, capsys, "v0.2.0", *STACK)
    (clone / "config/stack.yaml").write_text(stack)
    (clone / "README.md").write_text("changed")
    assert "the working tree is dirty: README.md" in rejected(clone, capsys, "v0.2.0", *STACK)
    git(clone, "checkout", "--quiet", "README.md")
    git(clone, "tag", "v0.2.0")
    assert ": already released" in rejected(clone, capsys, "v0.2.0", *STACK)


KUEUE = {
    "name": "Kueue",
    "version": "v0.11.6",
    "releases": "https://example.test/",
    "tested": "yes",
}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config/stack.yaml", "components: [", "config/stack.yaml: line 2: not valid YAML"),
        ("config/stack.yaml", "", "components: must be a list"),
        ("config/stack.yaml", "components: 3", "components: must be a list"),
        (
            "config/stack.yaml",
            "components: [{name: Kueue}]",
            "components[0]: must have name, version, releases",
        ),
        (
            "config/stack.yaml",
            yaml.safe_dump({"components": [KUEUE, KUEUE]}),
            "Kueue: is listed twice",
        ),
        (
            "config/stack.yaml",
            yaml.safe_dump({"components": [{**KUEUE, "version": "1"}]}),
            "components[0].version: '1'",
        ),
        ("config/releases.yaml", "x: [", "config/releases.yaml: line 2: not valid YAML"),
        (
            "config/releases.yaml",
            "releases: [{version: 1.0.0, channel: x}]",
            "releases[0]: channel 'x'",
        ),
        (
            "config/releases.yaml",
            "releases: [{version: 0.0.1, channel: fast}]",
            "tag v0.0.1 does not exist",
        ),
        (CATALOG, "x: [", "catalog.yaml: line 2: not valid YAML"),
        ("cfo/version.py", "", "cfo/version.py: __version__ must be set exactly once"),
        ("cfo/version.py", '__version__ = "x"\n', "__version__ 'x': must be a semantic version"),
        (
            "envtest/src/envtest/version.py",
            '__version__ = "0.0.9"\n',
            "envtest/src/envtest/version.py: __version__ 0.0.9: must be 0.1.0, as in cfo/version.py",
        ),
        (
            "pyproject.toml",
            '    "envtest==0.0.9"',
            "pyproject.toml: the pinned envtest 0.0.9: must be 0.1.0",
        ),
        (
            "handlers/pyproject.toml",
            '    "codeflare-operator==0.0.9"',
            "handlers/pyproject.toml: the pinned codeflare-operator 0.0.9: must be 0.1.0",
        ),
        ("CHANGELOG.md", "x", "CHANGELOG.md: the heading `## Unreleased` is missing"),
        (
            "envtest/CHANGELOG.md",
            "x",
            "envtest/CHANGELOG.md: the heading `## Unreleased` is missing",
        ),
    ],
)
def test_malformed_file_is_one_line_and_changes_nothing(
    shared_clone: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, reason: str
) -> None:
    (shared_clone / name).write_text(content + "\n" if content else "")
    git(shared_clone, "commit", "--quiet", "--all", "--message", "Break")
    assert reason in rejected(shared_clone, capsys, "v0.2.0", *STACK)


def test_readme_without_the_markers_of_the_matrix_is_rejected() -> None:
    with pytest.raises(
        ToolError, match=r"README\.md: must contain <!-- Compatibility Matrix start -->"
    ):
        readme("x", "table")


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("no-such-command", "No such file"),
        ('"', "No closing quotation"),
        ("", "the command is empty"),
    ],
)
def test_check_that_cannot_run_is_reported(
    shared_clone: Path, capsys: pytest.CaptureFixture[str], check: str, reason: str
) -> None:
    assert reason in rejected(shared_clone, capsys, "v0.2.0", *STACK, check=check)
