"""The checks before a release: the state of the repository, and commands such as ``make test``."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.files import ToolError
from hack.release import changelogs
from hack.release.repository import git, tags
from hack.release.request import Request
from hack.release.semver import Version
from hack.release.stack_releases import check_compatibility
from hack.release.versions import read_version


def check_repository(root: Path, request: Request) -> None:
    """Check that the tree is clean, the version is next on this branch, the changelogs fit it, and nothing breaks.

    Raises :class:`ToolError`.
    """
    changed = git(root, "status", "--porcelain")
    if changed:
        first = changed.splitlines()[0].split()[-1]
        raise ToolError(f"the working tree is dirty: {first}; commit or stash it")
    if not git(root, "branch", "--show-current"):
        raise ToolError("no branch is checked out")
    git(root, "var", "GIT_COMMITTER_IDENT")
    current = read_version(root)
    tagged = tags(root)
    if request.version in tagged:
        raise ToolError(f"version {request.tag}: already released")
    if current not in tagged and changelogs.has_heading(root, current):
        raise ToolError(
            f"{changelogs.OPERATOR}: v{current} is released but not tagged; fetch tags: git fetch --tags"
        )
    _check_order(request, current, tagged)
    _check_changelogs(root, request, tagged)
    check_compatibility(root, request, tagged)


def _check_order(request: Request, current: Version, tagged: list[Version]) -> None:
    newest = max(tagged, default=current)
    stream = request.version.stream
    if request.hotfix:
        earlier = [version for version in tagged if version.stream == stream]
        if not earlier:
            raise ToolError(f"--hotfix {request.tag}: no release v{stream[0]}.{stream[1]}.z exists")
        if request.version < max(earlier):
            raise ToolError(f"version {request.tag}: older than v{max(earlier)}")
        if current.stream != stream:
            raise ToolError(
                f"--hotfix {request.tag}: this branch is at v{current}; create a branch from v{max(earlier)}"
            )
    elif request.version < newest:
        raise ToolError(
            f"version {request.tag}: older than v{newest}; a fix of an older stream needs --hotfix"
        )
    elif current.stream < newest.stream:
        raise ToolError(
            f"version {request.tag}: this branch is at v{current} and does not contain the changes of v{newest}"
        )


def _check_changelogs(root: Path, request: Request, tagged: list[Version]) -> None:
    breaking = changelogs.breaking_section(root)
    older = [version for version in tagged if version < request.version and not version.pre]
    # Before 1.0, a minor version may break.
    is_same_major = bool(older) and 0 < older[-1].major == request.version.major
    if breaking is not None and is_same_major:
        name, section = breaking
        raise ToolError(
            f"version {request.tag}: {name} has a section {section}: needs v{older[-1].major + 1}.0.0"
        )
    if changelogs.is_empty(root) and not request.version.pre:
        raise ToolError(f"{' and '.join(changelogs.FILES)}: nothing is listed under Unreleased")


def run_check(command: Sequence[str], tree: Path, *, log_prefix: str = "") -> None:
    """Run a command in ``tree`` with the code of ``tree``, regardless of installed packages.

    The output of a failing check is kept in a temporary file whose name begins with ``log_prefix``; an empty prefix
    keeps none. Raises :class:`ToolError` if the command fails.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise ToolError(f"check failed: {shlex.join(command)}: {error.strerror}") from None
    if done.returncode == 0:
        return
    where = ""
    if log_prefix:
        with tempfile.NamedTemporaryFile(
            "w", prefix=log_prefix, suffix=".log", delete=False
        ) as log:
            log.write(done.stdout)
        where = f" (full output: {log.name})"
    reason = _reason_in(done.stdout)
    raise ToolError(f"check failed: {shlex.join(command)}: {reason}{where}")


def _reason_in(output: str) -> str:
    """Return the first error in the output of a check, or its last line."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("make")]
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            return line.strip()
    return lines[-1].strip() if lines else "no output"
