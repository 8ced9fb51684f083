"""What is known about one object: its state, facts and problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from cfo.runtime import GVK, NamespacedName

MAX_PROBLEMS: Final = 10
MAX_FACTS: Final = 24
MAX_CONDITIONS: Final = 24
MAX_WARNINGS: Final = 10
"""The maximum number of each in a summary."""

_SHOWN_ABOVE: Final = "(as above)"
"""What is shown of a Warning Event whose message was shown before."""

_COMPARED: Final = 120
"""The number of characters by which messages are compared, because long ones are cut at different places."""


class Level(Enum):
    """How an object is, in one word. The order is from what needs attention first to what needs none."""

    FAILED = "failed"
    """It has failed, and does not start again by itself."""
    WARNING = "warning"
    """It works or may start, but something is wrong with it."""
    PROGRESSING = "progressing"
    """It is being created, changed or deleted."""
    WAITING = "waiting"
    """It is suspended, on request or until there is quota for it."""
    OK = "ok"
    """It works as requested, or has finished successfully."""

    @property
    def rank(self) -> int:
        """The position in the order; 0 needs attention first."""
        return _RANKS[self]

    @property
    def is_wrong(self) -> bool:
        """Whether someone should act."""
        return self in (Level.FAILED, Level.WARNING)


_RANKS: Final = {level: rank for rank, level in enumerate(Level)}


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong, and what to do about it."""

    message: str
    remedy: str


class SummaryCondition(msgspec.Struct, frozen=True):
    """A condition of the object's status."""

    type: str
    status: str
    reason: str
    message: str
    since: str


class WarningEvent(msgspec.Struct, frozen=True):
    """A Warning Event about the object; ``last`` is its last occurrence (RFC 3339, UTC), ``count`` how often."""

    reason: str
    message: str
    last: str
    count: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one object. All strings are bounded and contain printable characters only."""

    gvk: GVK
    key: NamespacedName
    uid: str
    owner: str = ""
    """The uid of the object that controls it; empty if there is none."""
    state: str
    """The word that kubectl's column for the state shows, ``Terminating`` if it is being deleted; empty if kubectl
    shows nothing."""
    level: Level
    waits: bool = False
    """Whether it is suspended, whatever else is wrong with it."""
    ready: str
    """How many of its parts are ready, as ``2/3``; empty if it has no parts."""
    pending: str = ""
    """What has to happen until it has settled, as ``is Resuming``; empty if it has."""
    created: str
    """``metadata.creationTimestamp`` (RFC 3339)."""
    deleted: str = ""
    """``metadata.deletionTimestamp`` (RFC 3339); empty if it is not being deleted."""
    facts: tuple[tuple[str, str], ...] = ()
    """Names and values, the most important first."""
    problems: tuple[Problem, ...] = ()
    conditions: tuple[SummaryCondition, ...] = ()
    warnings: tuple[WarningEvent, ...] = ()
    """The Warning Events about it, the newest first; those that are resolved are no :attr:`problems`."""
    row: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The fields of its row of the page that only its kind has (see :class:`.kind_view.KindView`)."""

    def fact(self, name: str) -> str:
        """Return the value of the fact ``name``; empty if there is none."""
        return next((value for known, value in self.facts if known == name), "")

    def details(self) -> dict[str, list[tuple[str, str]]]:
        """Return its conditions and Warning Events as names and texts; a text that was shown before is not repeated."""
        shown = [
            *(problem.message for problem in self.problems),
            *(value for _, value in self.facts),
        ]

        def once(message: str) -> str:
            if any(message in known for known in shown):
                return ""
            shown.append(message)
            return message

        return {
            "Conditions": [
                (f"{each.type}: {each.status}", _condition_text(each, once(each.message)))
                for each in self.conditions
            ],
            "Warning Events": [
                (
                    f"{each.reason} (x{each.count})" if each.count > 1 else each.reason,
                    once(each.message) or (_SHOWN_ABOVE if each.message else ""),
                )
                for each in self.warnings
            ],
        }


def _condition_text(condition: SummaryCondition, message: str) -> str:
    """Return reason and ``message`` of a condition, without what only repeats its type."""
    words = (condition.reason, message if message != condition.reason else "")
    return ": ".join(word for word in words if word not in ("", condition.type))


def kind_names(kinds: Iterable[GVK]) -> dict[GVK, str]:
    """Return the name of each of ``kinds``, as kubectl writes it with the API group if several groups have the kind."""
    groups: dict[str, set[str]] = defaultdict(set)
    found = set(kinds)
    for gvk in found:
        groups[gvk.kind].add(gvk.group)
    names = {}
    for gvk in found:
        is_unique = len(groups[gvk.kind]) == 1
        names[gvk] = gvk.kind if is_unique else f"{gvk.kind}.{gvk.group}"
    return names


def statement(reason: str, message: str) -> str:
    """Return what a condition or an Event says: ``Reason: message``, or the one of both that is not empty.

    Any client can leave out one of them, or both: then it says nothing, and this is empty.
    """
    if message in ("", reason):
        return reason
    return f"{reason}: {message}" if reason else message


_REFUSALS: Final = (" is forbidden: ", " is invalid: ")
"""What the API server writes between the name of an object, such as a pod, and why it refuses the object."""


def repeats(message: str, known: str) -> bool:
    """Return whether ``message`` repeats the message ``known`` of a problem: all of it, or why an object was refused.

    Controllers report the refusal of a pod in their own words, with the answer of the API server at the end. One word
    is a reason without a message, which other messages only contain.
    """
    if " " not in known:
        return message == known
    if known[:_COMPARED] in message:
        return True
    for separator in _REFUSALS:
        _, is_refusal, cause = known.rpartition(separator)
        if is_refusal and cause[:_COMPARED] in message:
            return True
    return False


def distinct_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first :data:`MAX_PROBLEMS` different problems.

    One that repeats an earlier one, as an Event repeats the message of a condition, is left out.
    """
    found: list[Problem] = []
    for problem in problems:
        message = problem.message
        if message and not any(repeats(message, known.message) for known in found):
            found.append(problem)
        if len(found) == MAX_PROBLEMS:
            break
    return tuple(found)
