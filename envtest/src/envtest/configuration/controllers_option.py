"""The option ``--controllers`` of the commands."""

from __future__ import annotations

import click

from envtest.configuration.controller_names import DEFAULT

__all__ = ["controller_names", "controllers_option"]

controllers_option = click.option(
    "--controllers",
    default=",".join(DEFAULT),
    show_default=True,
    help="Controllers to run, comma-separated, or all, or none.",
)


def controller_names(text: str) -> tuple[str, ...]:
    """Return the controllers of the option: names separated by commas, ``all`` or ``none``."""
    if text == "none":
        return ()
    return tuple(name.strip() for name in text.split(",") if name.strip())
