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
    """Return the names that the option contains, separated by commas. Raises ValueError if there are none."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError(
            f"--controllers {text!r}: must be names of controllers, separated by commas, or all, or none"
        )
    return names
