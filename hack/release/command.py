"""The command line of ``python -m hack.release``: checks, a plan, and with ``--run`` one commit and one tag.

All work is done in a separate worktree; moving the branch to its commit is the last step. So no file, branch or tag
changes unless every check has passed.
"""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hack import ROOT
from hack.files import ToolError
from hack.release.checks import check_repository, run_check
from hack.release.history import CHANNELS
from hack.release.plan import plan, remaining
from hack.release.repository import git, worktree
from hack.release.request import OPTIONS, read_request
from hack.release.tree import move_branch, write

CHECKS = ("make lint", "make test")


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see python -m {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hack.release",
        description="Release both distributions. Without --run: print the plan.",
    )
    parser.add_argument("version", help="version of the operator, such as v2.1.0")
    for option, name in OPTIONS.items():
        parser.add_argument(f"--{option}", metavar="VERSION", help=f"version of {name}")
    parser.add_argument(
        "--partial", action="store_true", help="keep the versions of components that are not named"
    )
    parser.add_argument(
        "--hotfix", action="store_true", help="release a patch version, also of an older stream"
    )
    parser.add_argument(
        "--channel", choices=CHANNELS, help="maturity (default: stable; pre-releases: candidate)"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--run", action="store_true", help="release")
    mode.add_argument(
        "--dry-run", action="store_true", help="check, and print the plan (the default)"
    )
    check = f"command to run instead of: {', '.join(CHECKS)}; repeatable"
    parser.add_argument("--check", action="append", metavar="COMMAND", help=check)
    parser.add_argument(
        "--arguments-from",
        metavar="NAME",
        help="read further arguments from this environment variable",
    )
    parser.add_argument(
        "--output", type=Path, help="folder for the pull requests (default: dist/release-VERSION)"
    )
    return parser


def _checks(options: argparse.Namespace) -> list[list[str]]:
    commands = []
    for check in options.check or CHECKS:
        try:
            commands.append(shlex.split(check))
        except ValueError as error:
            raise ToolError(f"--check {check!r}: {error}") from None
        if not commands[-1]:
            raise ToolError("--check: the command is empty")
        program = commands[-1][0]
        is_path = os.sep in program  # relative to the worktree
        if not is_path and shutil.which(program) is None:
            raise ToolError(f"--check {check!r}: {program}: {os.strerror(errno.ENOENT)}")
    return commands


def run(root: Path, options: argparse.Namespace) -> None:
    """Check, print the plan, and with ``--run`` release.

    Raises :class:`ToolError`; nothing has changed then.
    """
    request = read_request(root, options)
    output = (options.output or root / "dist" / f"release-{request.tag}").absolute()
    checks = _checks(options)
    check_repository(root, request)
    with worktree(root) as tree:
        changed = write(tree, request)
        print(plan(request, changed, checks, output), flush=True)
        if options.run:
            for command in checks:
                print(f"Running check: {shlex.join(command)}", flush=True)
                run_check(command, tree, log_prefix=f"release-{request.tag}-")
            move_branch(root, tree, request, output)
            print(f"Released {request.tag} on {git(root, 'branch', '--show-current')}")
        print(remaining(tree, request, output))
    if not options.run:
        print("Nothing was changed; release with --run.")


def _command_line(arguments: Sequence[str]) -> list[str]:
    """Return ``arguments`` with ``--arguments-from NAME`` replaced by the words in the environment variable ``NAME``.

    Make targets and workflows use this option, so that no shell parses arguments that were entered in a form. Raises
    :class:`ToolError`.
    """
    words = list(arguments)
    if "--arguments-from" not in words:
        return words
    index = words.index("--arguments-from")
    name = "".join(words[index + 1 : index + 2])
    others = words[:index] + words[index + 2 :]
    try:
        return others + shlex.split(os.environ.get(name, ""))
    except ValueError as error:
        raise ToolError(f"{name}: {error}") from None


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command and return its exit code: 0, 2 for a :class:`ToolError`, 130 when interrupted."""
    if arguments is None:
        arguments = sys.argv[1:]
    try:
        options = _parser().parse_args(_command_line(arguments))
        run(root, options)
    except ToolError as error:
        print(f"hack.release: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hack.release: interrupted; nothing was changed", file=sys.stderr)
        return 130
    return 0
