"""Git, as a release uses it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from documents import Refused
from semver import Version


def git(root: Path, *arguments: str) -> str:
    """Runs git. Raises :class:`Refused` with the last line that it said."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Refused("git is not installed") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise Refused(f"git {arguments[0]}: {said}")
    return done.stdout.strip()


def tags(root: Path) -> list[Version]:
    """The releases that have been tagged, oldest first."""
    found = []
    for tag in git(root, "tag", "--list", "v*").split():
        try:
            found.append(Version.parse(tag))
        except ValueError:
            continue
    return sorted(found)


def content(root: Path, version: Version, name: str) -> str:
    """A file as a release has it; empty where it has none."""
    try:
        return git(root, "show", f"v{version}:{name}")
    except Refused:
        return ""


@contextmanager
def worktree(root: Path) -> Iterator[Path]:
    """A second working tree of what is checked out, which leaves no trace."""
    with TemporaryDirectory(prefix="release-") as folder:
        tree = Path(folder) / "tree"
        git(root, "worktree", "add", "--quiet", "--detach", str(tree), "HEAD")
        try:
            yield tree
        finally:
            git(root, "worktree", "remove", "--force", str(tree))
