"""Shows each problem once: for the owner of an object only, if both have it.

``cfo status`` and the page use this where they list objects. What is shown of one object has all its problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from cfo.runtime import GVK
from cfo.summaries.summary import Summary, kind_names, repeats

_MAX_OWNERS: Final = 4
"""The length of the longest chain of owners in which problems are left out: the owners can form a circle."""


def owner_of(summary: Summary, by_uid: Mapping[str, Summary]) -> Summary | None:
    """Return the object of the same namespace that controls an object; ``None`` if it is not one of ``by_uid``.

    ``None`` as well if its own owners are many, because each object of a circle would refer to the next one.
    """
    owner = _controller(summary, by_uid)
    above = owner
    for _ in range(_MAX_OWNERS):
        if above is None:
            return owner
        above = _controller(above, by_uid)
    return None


def _controller(summary: Summary, by_uid: Mapping[str, Summary]) -> Summary | None:
    owner = by_uid.get(summary.owner) if summary.owner else None
    if owner is None or owner.key.namespace != summary.key.namespace:
        return None
    return owner


def without_repetitions(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the summaries without the problems that the owner of an object has as well; a fact names the owner."""
    kinds = kind_names(summary.gvk for summary in summaries)
    by_uid = {summary.uid: summary for summary in summaries if summary.uid}
    return [without_problems_of(owner_of(summary, by_uid), summary, kinds) for summary in summaries]


def without_problems_of(
    owner: Summary | None, summary: Summary, kinds: Mapping[GVK, str]
) -> Summary:
    """Return ``summary`` without the problems that its ``owner`` has as well, and with a fact that names the owner.

    ``kinds`` has the name of the owner's kind (see :func:`.kind_names`).
    """
    if owner is None:
        return summary
    problems = tuple(
        each
        for each in summary.problems
        if not any(repeats(each.message, known.message) for known in owner.problems)
    )
    if len(problems) == len(summary.problems):
        return summary
    cause = ("cause", f"see {kinds[owner.gvk]} {owner.key}")
    return replace(summary, problems=problems, facts=(cause, *summary.facts))
