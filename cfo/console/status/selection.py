"""Which kinds and objects the arguments of ``cfo status`` select."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cfo.console.summaries import KINDS, Summary
from cfo.runtime import GVK

__all__ = ["InvalidSelection", "Selection", "parse_selection"]

_SHORT_NAMES: Final = {"aw": "appwrapper", "raycluster.ray.io": "raycluster", "rayclusters.ray.io": "raycluster"}


class InvalidSelection(ValueError):
    """Raised for an argument that selects no kind; the message is one line."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The kinds that are shown; ``name`` is that of the only object, or empty."""

    kinds: tuple[GVK, ...] = KINDS
    name: str = ""

    def of(self, summaries: Iterable[Summary]) -> list[Summary]:
        """Return the selected objects."""
        return [each for each in summaries if not self.name or each.key.name == self.name]


def parse_selection(argument: str | None) -> Selection:
    """Return what ``KIND`` or ``KIND/NAME`` selects (as in kubectl, in any case, singular or plural); ``None``: all.

    Raises :class:`InvalidSelection`.
    """
    if argument is None:
        return Selection()
    kind, separator, name = argument.partition("/")
    given = _SHORT_NAMES.get(kind.lower(), kind.lower())
    kinds = tuple(gvk for gvk in KINDS if given in (gvk.kind.lower(), f"{gvk.kind.lower()}s"))
    if not kinds:
        known = ", ".join(dict.fromkeys(gvk.kind.lower() for gvk in KINDS))
        raise InvalidSelection(f"{kind!r}: must be one of {known}")
    if separator and not name:
        raise InvalidSelection(f"{argument!r}: must be KIND or KIND/NAME")
    return Selection(kinds, name)
