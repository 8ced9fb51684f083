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
from typing import Any, NoReturn

import pull_requests
import released
import stack
import tags as image_tags
from documents import Refused, read
from released import CHANNELS
from repository import git, tags, worktree
from semver import Version

OPTIONS = {"sdk": "CodeFlare-SDK", "appwrapper": "AppWrapper", "kuberay": "KubeRay", "kueue": "Kueue"}
CHECKS = ("make lint", "make test")
PREDECESSOR = Version(1, 16, 0)
"""The last one of the Go operator, under the same package name, in the community's catalog."""


@dataclass(frozen=True)
class Request:
    """What is to be released."""

    version: Version
    components: dict[str, str]
    before: dict[str, str]
    channel: str
    hotfix: bool
    today: date

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    @property
    def stack(self) -> dict[str, str]:
        return {stack.OPERATOR: self.tag, **self.components}


def read_request(root: Path, options: argparse.Namespace) -> Request:
    """Checks what was asked for. Raises :class:`Refused`."""
    version = _version(options.version, "version")
    known = {each["name"]: each["version"] for each in stack.load(root)}
    chosen: dict[str, str] = {}
    for option, name in OPTIONS.items():
        if name not in known:
            raise Refused(f"{stack.STACK}: components: there is no {name}")
        given = getattr(options, option)
        if given is None and not options.partial:
            raise Refused(f"--{option}: the version of {name} is missing (now {known[name]}; --partial keeps it)")
        new = _version(given if given is not None else known[name], f"--{option}")
        if new < Version.parse(known[name]) and not options.hotfix:
            raise Refused(f"--{option} v{new}: is older than {known[name]} of the release before; only --hotfix may")
        chosen[name] = f"v{new}"
    channel = options.channel or ("candidate" if version.pre else "stable")
    if version.pre and channel != "candidate":
        raise Refused(f"--channel {channel}: {version} is a pre-release, which only goes to candidate")
    return Request(version, chosen, known, channel, options.hotfix, datetime.now(UTC).date())


def _version(text: str, where: str) -> Version:
    try:
        return Version.parse(text)
    except ValueError as error:
        raise Refused(f"{where} {error}") from None


def check_repository(root: Path, request: Request) -> None:
    """Is the tree clean, the version newer and of this branch, is there something to tell? Raises :class:`Refused`."""
    if changed := git(root, "status", "--porcelain"):
        raise Refused(f"the tree is dirty: {changed.splitlines()[0].split()[-1]}; commit it or put it away")
    if not git(root, "branch", "--show-current"):
        raise Refused("no branch is checked out")
    git(root, "var", "GIT_COMMITTER_IDENT")
    current = _version(_read_version(root), "cfo/version.py: __version__")
    done = tags(root)
    if request.version in done:
        raise Refused(f"version {request.tag}: has been released already")
    if current not in done and re.search(rf"^## {re.escape(str(current))}\b", _changelog(root), re.MULTILINE):
        raise Refused(f"CHANGELOG.md: v{current} has been released, but there is no tag of it: git fetch --tags")
    _check_order(request, current, done)
    _check_changelog(root, request, done)


def _check_order(request: Request, current: Version, done: list[Version]) -> None:
    newest = max([*done, current] if current in done else done or [current])
    stream, here = _stream(request.version), _stream(current)
    if request.hotfix:
        before = [version for version in done if _stream(version) == stream]
        if not before:
            raise Refused(f"--hotfix {request.tag}: there is no release v{stream[0]}.{stream[1]}.z to fix")
        if request.version < max(before):
            raise Refused(f"version {request.tag}: is older than v{max(before)}")
        if here != stream:
            raise Refused(f"--hotfix {request.tag}: this branch is at v{current}; make one from v{max(before)}")
    elif request.version < newest:
        raise Refused(f"version {request.tag}: is older than v{newest}; a fix for an old stream needs --hotfix")
    elif here < _stream(newest):
        raise Refused(f"version {request.tag}: this branch is at v{current}, and lacks what v{newest} has")


def _stream(version: Version) -> tuple[int, int]:
    return version.major, version.minor


def _check_changelog(root: Path, request: Request, done: list[Version]) -> None:
    told = unreleased(root)
    older = [version for version in done if version < request.version and not version.pre]
    breaking = re.search(r"^### (Removed|Breaking)", told, re.MULTILINE)
    if breaking and older and 0 < older[-1].major == request.version.major:  # before 1.0 a minor version may break
        raise Refused(
            f"version {request.tag}: CHANGELOG.md has a section {breaking[1]}: needs v{older[-1].major + 1}.0.0"
        )
    if not told.strip() and not request.version.pre:
        raise Refused("CHANGELOG.md: there is nothing under Unreleased to tell users")


def _read_version(root: Path) -> str:
    match = re.search(r'^__version__ = "(.+)"$', read(root / "cfo/version.py", root), re.MULTILINE)
    if match is None:
        raise Refused("cfo/version.py: there is no __version__")
    return match[1]


def _changelog(root: Path) -> str:
    return read(root / "CHANGELOG.md", root)


def unreleased(root: Path) -> str:
    """What stands under Unreleased in the changelog."""
    match = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", _changelog(root), re.MULTILINE | re.DOTALL)
    if match is None:
        raise Refused("CHANGELOG.md: there is no heading `## Unreleased`")
    return match[1]


def write(tree: Path, request: Request) -> list[str]:
    """Writes everything that a release changes into the worktree ``tree``; the names of what has changed."""
    prepared = _version(_read_version(tree), "cfo/version.py")
    version = tree / "cfo/version.py"
    version.write_text(re.sub(r'(__version__ = ").+(")', rf"\g<1>{request.version}\g<2>", version.read_text()))
    path = tree / stack.STACK
    text = path.read_text()
    for name, number in request.stack.items():
        text, count = re.subn(rf"(- name: {re.escape(name)}\n    version: )\S+", rf"\g<1>{number}", text)
        if count != 1:
            raise Refused(
                f"{stack.STACK}: the entry of {name} must be `- name: {name}`, with its version in the next line"
            )
    path.write_text(text)
    released.gather(tree, prepared)
    released.write_releases(tree, {**released.releases(tree), request.version: request.channel})
    changelog = tree / "CHANGELOG.md"
    if unreleased(tree).strip():
        heading = f"## Unreleased\n\n## {request.version} - {request.today.isoformat()}"
        changelog.write_text(changelog.read_text().replace("## Unreleased", heading, 1))
    _run([sys.executable, "hack/generate.py"], tree)
    _run([sys.executable, "hack/validate_olm.py", "--released"], tree)
    git(tree, "add", "--all")
    return git(tree, "diff", "--cached", "--name-only").splitlines()


def _run(command: Sequence[str], tree: Path, *, log_as: str = "") -> None:
    """Runs a check, with the tree's own code, whatever is installed. Raises :class:`Refused`.

    ``log_as`` begins the name of the temporary file that keeps what a failing check printed; empty: none does.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        raise Refused(f"check failed: {shlex.join(command)}: {error.strerror}") from None
    if done.returncode == 0:
        return
    lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("make")]
    telling = next(
        (line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1] if lines else "no output"
    )
    where = ""
    if log_as:
        with tempfile.NamedTemporaryFile("w", prefix=log_as, suffix=".log", delete=False) as log:
            log.write(done.stdout)
        where = f" (all of it: {log.name})"
    raise Refused(f"check failed: {shlex.join(command)}: {telling.strip()}{where}")


def plan(request: Request, changed: Sequence[str], checks: Sequence[Sequence[str]], output: Path) -> str:
    """What a release does, for people."""
    rows = "\n".join(
        f"     {name:20} {number}" + (f"  (now {now})" if (now := request.before[name]) != number else "")
        for name, number in request.stack.items()
    )
    commands = "\n".join(f"     {shlex.join(command)}" for command in checks)
    files = "\n".join(f"     {name}" for name in changed)
    kind = "hotfix" if request.hotfix else "release"
    return f"""Plan of the {kind} {request.tag}, channel {request.channel}:
  1. versions (cfo/version.py, config/stack.yaml):
{rows}
  2. generated from these: matrix in README.md, bundle/, catalog/, config/manager/params.env, Helm chart;
     CHANGELOG.md gets the heading {request.version}. What changes:
{files}
  3. checks, in a worktree of its own:
{commands}
  4. one commit, one tag {request.tag}, on the branch that is checked out
  5. written to {output}: pull requests for community operators and Open Data Hub"""


def remaining(root: Path, request: Request, output: Path) -> str:
    """What a person or a workflow does next."""
    names = image_tags.names(request.tag, read(root / released.RELEASES, root))
    images = [f"{pull_requests.IMAGE}:{name}" for name in (*names, *([] if request.hotfix else ["dev"]))]
    folders = ", ".join(f"{name}/" for name in _folders(root, request))
    return f"""What remains:
  make release-push                  (git push --follow-tags origin HEAD)
  make image-push TAGS="{" ".join(images)}"
  make bundle-push catalog-push
  open the pull requests in {output}: {folders}
  make the release {request.tag} from {output}/notes.md; tell chat and mailing lists"""


def _for_operators(root: Path, request: Request) -> bool:
    newest = max(version for version in released.releases(root) if version.major == request.version.major)
    return not request.version.pre and request.version == newest and request.version > PREDECESSOR


def _folders(root: Path, request: Request) -> list[str]:
    sdk = OPTIONS["sdk"]
    return [
        *(["community-operators"] if _for_operators(root, request) else []),
        "opendatahub",
        *(["opendatahub-notebooks"] if request.components[sdk] != request.before[sdk] else []),
    ]


def _contents(tree: Path, request: Request) -> pull_requests.Contents:
    _, _, rest = _changelog(tree).partition(f"## {request.version} - {request.today.isoformat()}\n")
    return pull_requests.Contents(
        version=request.version,
        components=request.stack,
        sdk_before=request.before[OPTIONS["sdk"]],
        notes=rest.partition("\n## ")[0].strip(),
        for_operators=_for_operators(tree, request),
    )


def _take_over(root: Path, tree: Path, request: Request, output: Path) -> None:
    """Lets the branch have the commit of ``tree``, with its tag and with what goes to others; or none of them."""
    git(tree, "commit", "--quiet", "--message", f"Release {request.tag}")
    commit = git(tree, "rev-parse", "HEAD")
    made = output.with_name(f"{output.name}.new")
    try:
        shutil.rmtree(made, ignore_errors=True)
        pull_requests.write(tree, made, _contents(tree, request))
        git(root, "tag", "--annotate", "--message", f"CodeFlare operator {request.tag}", request.tag, commit)
        try:
            git(root, "merge", "--quiet", "--ff-only", commit)
        except Refused:
            git(root, "tag", "--delete", request.tag)
            raise
        shutil.rmtree(output, ignore_errors=True)
        made.rename(output)
    except OSError as error:
        raise Refused(f"--output {output}: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="hack/release", description="Release the operator. Without --run: only the plan.")
    parser.add_argument("version", help="of the operator, such as v2.1.0")
    for option, name in OPTIONS.items():
        parser.add_argument(f"--{option}", metavar="VERSION", help=f"the version of {name}")
    parser.add_argument("--partial", action="store_true", help="components that are not named keep their version")
    parser.add_argument("--hotfix", action="store_true", help="a z release, also of an old stream")
    parser.add_argument("--channel", choices=CHANNELS, help="how far it has come (stable; pre-releases: candidate)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--run", action="store_true", help="do it")
    mode.add_argument("--dry-run", action="store_true", help="check, and print the plan (the default)")
    instead = f"instead of: {', '.join(CHECKS)}; repeatable"
    parser.add_argument("--check", action="append", metavar="COMMAND", help=instead)
    parser.add_argument("--output", type=Path, help="folder for the pull requests (dist/release-VERSION)")
    return parser


def _checks(options: Any) -> list[list[str]]:
    checks = []
    for each in options.check or CHECKS:
        try:
            checks.append(shlex.split(each))
        except ValueError as error:
            raise Refused(f"--check {each!r}: {error}") from None
        if not checks[-1]:
            raise Refused("--check: the command is empty")
    return checks


def run(root: Path, options: argparse.Namespace) -> None:
    """Checks and plans, and with ``--run`` makes the release. Raises :class:`Refused`, and then nothing has changed."""
    request = read_request(root, options)
    output = (options.output or root / "dist" / f"release-{request.tag}").absolute()
    checks = _checks(options)
    check_repository(root, request)
    with worktree(root) as tree:
        changed = write(tree, request)
        print(plan(request, changed, checks, output), flush=True)
        if options.run:
            for command in checks:
                print(f"checking: {shlex.join(command)}", flush=True)
                _run(command, tree, log_as=f"release-{request.tag}-")
            _take_over(root, tree, request, output)
            print(f"released {request.tag} on {git(root, 'branch', '--show-current')}")
        print(remaining(tree, request, output))
    if not options.run:
        print("Nothing was changed; --run does it.")


def main(arguments: Sequence[str] | None = None, root: Path = Path(__file__).parent.parent) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        run(root, options)
    except Refused as error:
        print(f"hack/release: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hack/release: interrupted; nothing has changed", file=sys.stderr)
        return 130
    return 0
