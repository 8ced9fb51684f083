"""The errors of CLI commands: each prints one line on stderr, and the class determines the exit code."""

from __future__ import annotations

import click

__all__ = ["CommandFailed", "InvalidInput"]


class CommandFailed(click.ClickException):
    """A command failed: prints one line, exit code 1."""

    exit_code = 1


class InvalidInput(click.ClickException):
    """The arguments or the configuration are invalid: prints one line, exit code 2."""

    exit_code = 2
