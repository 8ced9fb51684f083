"""The state of the operator's kinds, for people: what ``cfo status`` and the views show.

Everything here only reads. For each object there is one :class:`Summary`: its state, facts, and what is wrong with it
and how to fix that. The functions that compute them are pure; :class:`Overview` watches the objects, and computes again
only what has changed.
"""

from cfo.console.summaries.kind_view import KindView, PhaseChange, Related, related_kinds, summarize
from cfo.console.summaries.overview import Change, ChangeType, Overview, interruption
from cfo.console.summaries.summary import Condition, Level, Problem, Summary, WarningEvent

__all__ = [
    "Change",
    "ChangeType",
    "Condition",
    "KindView",
    "Level",
    "Overview",
    "PhaseChange",
    "Problem",
    "Related",
    "Summary",
    "WarningEvent",
    "interruption",
    "related_kinds",
    "summarize",
]
