"""A release: checks, a plan, and (only when told to) the changes, one commit and one tag.

All work is done in a worktree of its own; the branch takes it over in the last step. So nothing is changed, no file
and no tag, unless every check has passed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml
from semver import Version

IMAGE = "quay.io/project-codeflare/codeflare-operator"
OPTIONS = {"sdk": "CodeFlare-SDK", "appwrapper": "AppWrapper", "kuberay": "KubeRay", "kueue": "Kueue"}
CHANNELS = ("candidate", "fast", "stable")
OPERATOR = "CodeFlare Operator"


class Refused(Exception):
    """A check has failed; one line that says which, and what to do."""


@dataclass(frozen=True)
class Request:
    """What is to be released."""

    version: Version
    components: dict[str, str]
    channel: str
    hotfix: bool
    today: date

    @property
    def tag(self) -> str:
        return f"v{self.version}"


def git(root: Path, *arguments: str) -> str:
    """Runs git. Raises :class:`Refused` with the last line that it said."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"git {arguments[0]}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")
    return done.stdout.strip()


def read_request(root: Path, options: argparse.Namespace) -> Request:
    """Checks what was asked for. Raises :class:`Refused`."""
    try:
        version = Version.parse(options.version)
    except ValueError as error:
        raise Refused(f"version {error}") from None
    known = {
        each["name"]: each["version"] for each in yaml.safe_load((root / "config/stack.yaml").read_text())["components"]
    }
    chosen: dict[str, str] = {}
    for option, name in OPTIONS.items():
        if name not in known:
            raise Refused(f"config/stack.yaml: components: there is no {name}")
        given = getattr(options, option)
        if given is None and not options.partial:
            raise Refused(f"--{option}: the version of {name} is missing (now {known[name]}; --partial keeps it)")
        try:
            new = Version.parse(given if given is not None else known[name])
        except ValueError as error:
            raise Refused(f"--{option} {error}") from None
        if new < Version.parse(known[name]) and not options.hotfix:
            raise Refused(f"--{option} v{new}: is older than {known[name]} of the release before; only --hotfix may")
        chosen[name] = f"v{new}"
    channel = options.channel or ("candidate" if version.pre else "stable")
    if version.pre and channel != "candidate":
        raise Refused(f"--channel {channel}: {version} is a pre-release, which only goes to candidate")
    return Request(version, chosen, channel, options.hotfix, datetime.now(UTC).date())


def check_repository(root: Path, request: Request) -> None:
    """Is the tree clean, the tag free, the version newer, and is there something to tell? Raises :class:`Refused`."""
    if changed := git(root, "status", "--porcelain"):
        raise Refused(f"the tree is dirty: {changed.splitlines()[0].split()[-1]}; commit it or put it away")
    branch = git(root, "branch", "--show-current")
    if not branch:
        raise Refused("no branch is checked out")
    tags = [Version.parse(tag) for tag in git(root, "tag", "--list", "v*").split() if _is_version(tag)]
    if request.version in tags:
        raise Refused(f"version {request.tag}: has been released already")
    current = Version.parse(_read_version(root))
    newest = max([*tags, current] if current in tags else tags or [current])
    stream = (request.version.major, request.version.minor)
    if request.hotfix:
        before = [tag for tag in tags if (tag.major, tag.minor) == stream]
        if not before:
            raise Refused(f"--hotfix {request.tag}: there is no release v{stream[0]}.{stream[1]}.z to fix")
        if request.version < max(before):
            raise Refused(f"version {request.tag}: is older than v{max(before)}")
    elif request.version < newest:
        raise Refused(f"version {request.tag}: is older than v{newest}; a fix for an old stream needs --hotfix")
    breaking = re.search(r"^### (Removed|Breaking)", unreleased(root), re.MULTILINE)
    if breaking and tags and 0 < newest.major == request.version.major:  # before 1.0 a minor version may break
        raise Refused(f"version {request.tag}: CHANGELOG.md has a section {breaking[1]}: needs v{newest.major + 1}.0.0")
    if not unreleased(root).strip():
        raise Refused("CHANGELOG.md: there is nothing under Unreleased to tell users")


def _is_version(tag: str) -> bool:
    try:
        Version.parse(tag)
    except ValueError:
        return False
    return True


def _read_version(root: Path) -> str:
    match = re.search(r'^__version__ = "(.+)"$', (root / "cfo/version.py").read_text(), re.MULTILINE)
    if match is None:
        raise Refused("cfo/version.py: there is no __version__")
    return match[1]


def unreleased(root: Path) -> str:
    """What stands under Unreleased in the changelog."""
    text = (root / "CHANGELOG.md").read_text()
    match = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise Refused("CHANGELOG.md: there is no heading `## Unreleased`")
    return match[1]


def write(root: Path, request: Request) -> None:
    """Changes version, stack, releases and changelog in the tree ``root``; the rest is generated from these."""
    version = root / "cfo/version.py"
    version.write_text(re.sub(r'(__version__ = ").+(")', rf"\g<1>{request.version}\g<2>", version.read_text()))
    stack = root / "config/stack.yaml"
    text = stack.read_text()
    for name, number in {OPERATOR: request.tag, **request.components}.items():
        text, count = re.subn(rf"(- name: {re.escape(name)}\n    version: )\S+", rf"\g<1>{number}", text)
        if count != 1:
            raise Refused(f"config/stack.yaml: the entry of {name} must stand there once, with its version below")
    stack.write_text(text)
    _write_releases(root / "config/releases.yaml", request)
    _forget_bundle(root / "catalog/codeflare-operator/catalog.yaml", request)
    changelog = root / "CHANGELOG.md"
    heading = f"## Unreleased\n\n## {request.version} - {request.today.isoformat()}"
    changelog.write_text(changelog.read_text().replace("## Unreleased", heading, 1))


def _write_releases(path: Path, request: Request) -> None:
    text = path.read_text()
    comment = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    releases: list[dict[str, Any]] = yaml.safe_load(text)["releases"]
    others = [each for each in releases if each["version"] != str(request.version)]
    everything = [*others, {"version": str(request.version), "channel": request.channel}]
    everything.sort(key=lambda each: Version.parse(each["version"]))
    path.write_text(comment + yaml.safe_dump({"releases": everything}, sort_keys=False))


def _forget_bundle(path: Path, request: Request) -> None:
    """Lets the catalog's bundle of a version that was only prepared be rendered anew."""
    blobs = list(yaml.safe_load_all(path.read_text()))
    left = [blob for blob in blobs if blob["name"] != f"codeflare-operator.{request.tag}"]
    path.write_text(yaml.safe_dump_all(left, sort_keys=False))


def _run(command: Sequence[str], root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root)}  # the tree's own code, whatever is installed
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise Refused(f"check failed: {shlex.join(command)}: {said[-1]}")


def plan(request: Request, checks: Sequence[Sequence[str]], output: Path) -> str:
    """What a release does, for people."""
    rows = "\n".join(
        f"     {name:20} {number}" for name, number in {OPERATOR: request.tag, **request.components}.items()
    )
    commands = "\n".join(f"     {shlex.join(command)}" for command in checks)
    kind = "hotfix" if request.hotfix else "release"
    return f"""Plan of the {kind} {request.tag}, channel {request.channel}:
  1. versions (cfo/version.py, config/stack.yaml):
{rows}
  2. generated from these: matrix in README.md, bundle/, catalog/, config/manager/params.env, Helm chart;
     CHANGELOG.md gets the heading {request.version}
  3. checks, in a worktree of its own:
{commands}
  4. one commit, one tag {request.tag}, on the branch that is checked out
  5. written to {output}: pull requests for community operators and Open Data Hub"""


def remaining(request: Request, output: Path) -> str:
    """What a person or a workflow does next."""
    stable = f" {IMAGE}:stable" if request.channel == "stable" and not request.hotfix else ""
    return f"""What remains:
  git push origin HEAD {request.tag}
  make image-push TAGS="{IMAGE}:{request.tag}{stable} {IMAGE}:dev"
  make bundle-push catalog-push
  open the pull requests in {output}: community-operators/, opendatahub/
  make the release {request.tag} from {output}/notes.md; tell chat and mailing lists"""


def write_pull_requests(root: Path, request: Request, output: Path) -> None:
    """Lays out what goes to other repositories, with the text of each pull request."""
    if output.exists():
        shutil.rmtree(output)
    operators = output / "community-operators"
    target = operators / "operators" / "codeflare-operator" / str(request.version)
    target.mkdir(parents=True)
    for name in ("manifests", "metadata"):
        if (root / "bundle" / name).is_dir():
            shutil.copytree(root / "bundle" / name, target / name)
    rows = "\n".join(f"* {name} {number}" for name, number in {OPERATOR: request.tag, **request.components}.items())
    (operators / "pull-request.md").write_text(
        f"# operator codeflare-operator ({request.version})\n\nBundle of CodeFlare operator {request.tag}:\n\n{rows}\n"
    )
    odh = output / "opendatahub"
    shutil.copytree(root / "config", odh / "config")
    (odh / "pull-request.md").write_text(
        f"# Update the CodeFlare operator to {request.tag}\n\nManifests and `config/manager/params.env` of "
        f"{request.tag}. The image is `{IMAGE}:{request.tag}`.\n\n{rows}\n"
    )
    (output / "notes.md").write_text(f"# {request.tag}\n\n{rows}\n\n{_notes(root, request)}")


def _notes(root: Path, request: Request) -> str:
    text = (root / "CHANGELOG.md").read_text()
    _, _, rest = text.partition(f"## {request.version} - {request.today.isoformat()}\n")
    return rest.partition("\n## ")[0].strip() + "\n"


def release(root: Path, request: Request, checks: Sequence[Sequence[str]], output: Path) -> None:
    """Makes the release. Raises :class:`Refused`, and then nothing has changed."""
    branch = git(root, "branch", "--show-current")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        tree = Path(folder) / "tree"
        git(root, "worktree", "add", "--quiet", "--detach", str(tree), "HEAD")
        try:
            write(tree, request)
            _run([sys.executable, "hack/generate.py"], tree)
            for command in checks:
                _run(command, tree)
            git(tree, "add", "--all")
            git(tree, "commit", "--quiet", "--message", f"Release {request.tag}")
            commit = git(tree, "rev-parse", "HEAD")
            made = Path(folder) / "output"
            write_pull_requests(tree, request, made)
            git(root, "tag", "--annotate", "--message", f"CodeFlare operator {request.tag}", request.tag, commit)
            try:
                git(root, "merge", "--quiet", "--ff-only", commit)
            except Refused:
                git(root, "tag", "--delete", request.tag)
                raise
            if output.exists():
                shutil.rmtree(output)
            shutil.copytree(made, output)
        finally:
            git(root, "worktree", "remove", "--force", str(tree))
    print(f"released {request.tag} on {branch}")


def main(arguments: Sequence[str] | None = None, root: Path = Path(__file__).parent.parent) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="hack/release", description="Release the operator. Without --run: only the plan."
    )
    parser.add_argument("version", help="of the operator, such as v1.2.3")
    for option, name in OPTIONS.items():
        parser.add_argument(f"--{option}", metavar="VERSION", help=f"the version of {name}")
    parser.add_argument("--partial", action="store_true", help="components that are not named keep their version")
    parser.add_argument("--hotfix", action="store_true", help="a z release, also of an old stream")
    parser.add_argument("--channel", choices=CHANNELS, help="how far it has come (stable; pre-releases: candidate)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--run", action="store_true", help="do it")
    mode.add_argument("--dry-run", action="store_true", help="check, and print the plan (the default)")
    parser.add_argument(
        "--check", action="append", metavar="COMMAND", help="instead of: make lint, make test; repeatable"
    )
    parser.add_argument("--output", type=Path, help="folder for the pull requests (dist/release-VERSION)")
    options = parser.parse_args(arguments)
    try:
        request = read_request(root, options)
        output = options.output or root / "dist" / f"release-{request.tag}"
        checks = [shlex.split(each) for each in options.check or ["make lint", "make test"]]
        check_repository(root, request)
        print(plan(request, checks, output))
        if options.run:
            release(root, request, checks, output)
            print(remaining(request, output))
        else:
            print("Nothing was changed; --run does it.")
    except Refused as error:
        print(f"hack/release: {error}", file=sys.stderr)
        return 2
    return 0
