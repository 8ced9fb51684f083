"""What is known of the pods of an AppWrapper: pure functions.

Pods with the AppWrapper's label are cached. Users can remove the label, and fill the cache, so decisions that release
or keep quota need a list of the namespace's pods (:mod:`.namespace_pods`).
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, auto
from typing import Final

UNKNOWN_LIMIT: Final = timedelta(minutes=30)
"""For how long what was known last applies while too little is known of the pods: they are read in turns.

Users choose how many pods there are to read, and with which owners, so that can last. Their quota must not.
"""


class PodKnowledge(Enum):
    """What is known of the pods of an AppWrapper."""

    CACHED = auto()
    """The cache has all pods with its label."""
    LEFT_OUT = auto()
    """The cache leaves out pods of its namespace, and these were not listed: its own can be among them."""
    OWNERS_UNKNOWN = auto()
    """The owners of some that have its label cannot be read yet: its own can be among these."""
    LISTED = auto()
    """They were listed, and all of its own that can run or have succeeded are known, at least by their metadata."""

    @property
    def lacks_pods(self) -> bool:
        """Whether the AppWrapper can have other pods than those that are known."""
        return self in (PodKnowledge.LEFT_OUT, PodKnowledge.OWNERS_UNKNOWN)


def knowledge_of_pods(
    *, is_cached: bool, is_listed: bool = False, has_unknown_owners: bool = False
) -> PodKnowledge:
    """Return what is known of the pods of an AppWrapper.

    ``is_cached``: whether the cache has room for all pods of the namespace. ``is_listed``: whether a list has them.
    ``has_unknown_owners``: whether owners of pods with the AppWrapper's label are not known.
    """
    if not is_cached and not is_listed:
        return PodKnowledge.LEFT_OUT
    if has_unknown_owners:
        return PodKnowledge.OWNERS_UNKNOWN
    return PodKnowledge.CACHED if is_cached else PodKnowledge.LISTED
