"""The git operations of a release."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hack.files import ToolError
from hack.release.semver import Version


def git(root: Path, *arguments: str) -> str:
    """Run git and return its output. Raises :class:`ToolError` with the last line of its error output."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ToolError("git is not installed") from None
    if done.returncode:
        reason = (
            done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        ).splitlines()[-1]
        raise ToolError(f"git {arguments[0]}: {reason}")
    return done.stdout.strip()


def tags(root: Path) -> list[Version]:
    """Return the versions of all release tags, oldest first."""
    versions = []
    for tag in git(root, "tag", "--list", "v*").split():
        try:
            versions.append(Version.parse(tag))
        except ValueError:
            continue
    return sorted(versions)


def content(root: Path, version: Version, name: str) -> str:
    """Return a file of a tagged release; empty when the release does not have it."""
    try:
        return git(root, "show", f"v{version}:{name}")
    except ToolError:
        return ""


@contextmanager
def worktree(root: Path) -> Iterator[Path]:
    """Check out HEAD in a second working tree, which is removed at the end."""
    with TemporaryDirectory(prefix="release-") as folder:
        tree = Path(folder) / "tree"
        git(root, "worktree", "add", "--quiet", "--detach", str(tree), "HEAD")
        try:
            yield tree
        finally:
            git(root, "worktree", "remove", "--force", str(tree))
