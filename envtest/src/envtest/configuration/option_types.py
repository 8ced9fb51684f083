"""Types of the options of the commands: a wrong value is reported in plain words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["PORT", "Integer", "Number", "PathOption"]


class Integer(click.IntRange):
    """An integer within limits."""

    name = "integer"


class Number(click.FloatRange):
    """A number within limits, which is finite."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Fails for other values."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class PathOption(click.Path):
    """A path; an empty one, as of an unset variable, is not the working directory."""

    def __init__(
        self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True
    ) -> None:
        """Create the type of a path, which has to exist, or may be a file or a folder."""
        super().__init__(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Fails for an empty one."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


PORT: Final = Integer(0, 65535)
