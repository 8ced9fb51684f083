"""Writes a release into a worktree, commits it there, and moves the branch to that commit."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from hack.files import ToolError
from hack.release import changelogs, history, pull_requests, stack, stack_releases
from hack.release.checks import run_check
from hack.release.plan import for_community_operators
from hack.release.repository import git, tags
from hack.release.request import SDK, Request
from hack.release.versions import read_version, write_version


def write(tree: Path, request: Request) -> list[str]:
    """Write everything that a release changes into the worktree ``tree``; return the names of the changed files."""
    prepared = read_version(tree)
    write_version(tree, request.version)
    _write_stack(tree / stack.STACK, request)
    history.merge(tree, prepared)
    history.write_releases(tree, {**history.releases(tree), request.version: request.channel})
    stack_releases.write_next(tree, request, tags(tree))
    changelogs.write_heading(tree, request.version, request.today)
    run_check([sys.executable, "-m", "hack.generate"], tree)
    run_check([sys.executable, "-m", "hack.generate.olm.validate", "--released"], tree)
    git(tree, "add", "--all")
    return git(tree, "diff", "--cached", "--name-only").splitlines()


def _write_stack(path: Path, request: Request) -> None:
    text = path.read_text()
    for name, number in request.stack.items():
        text, count = re.subn(
            rf"(- name: {re.escape(name)}\n    version: )\S+", rf"\g<1>{number}", text
        )
        if count != 1:
            raise ToolError(
                f"{stack.STACK}: the entry of {name} must be `- name: {name}`, with its version on the next line"
            )
    path.write_text(text)


def move_branch(root: Path, tree: Path, request: Request, output: Path) -> None:
    """Commit ``tree``, tag the commit, move the branch to it and write the pull requests to ``output``, or do nothing.

    Raises :class:`ToolError`; branch, tags and ``output`` are then as before.
    """
    git(tree, "commit", "--quiet", "--message", f"Release {request.tag}")
    commit = git(tree, "rev-parse", "HEAD")
    temporary = output.with_name(f"{output.name}.new")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        pull_requests.write(tree, temporary, _contents(tree, request))
        git(
            root,
            "tag",
            "--annotate",
            "--message",
            f"CodeFlare operator {request.tag}",
            request.tag,
            commit,
        )
        try:
            git(root, "merge", "--quiet", "--ff-only", commit)
        except ToolError:
            git(root, "tag", "--delete", request.tag)
            raise
        shutil.rmtree(output, ignore_errors=True)
        temporary.rename(output)
    except OSError as error:
        raise ToolError(f"--output {output}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _contents(tree: Path, request: Request) -> pull_requests.Contents:
    return pull_requests.Contents(
        version=request.version,
        components=request.stack,
        previous_sdk=request.previous[SDK],
        notes=changelogs.notes(tree, request.version, request.today),
        for_community_operators=for_community_operators(tree, request),
    )
