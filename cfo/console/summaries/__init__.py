"""The state of the operator's kinds, for people: what ``cfo status`` and the views show.

Everything here only reads. For each object there is one :class:`Summary`: its state, facts, and what is wrong with it
and how to fix that. The functions that compute them are pure; :class:`Overview` watches the objects, and computes again
only what has changed.

* :mod:`.summary`: what is known about an object.
* :mod:`.reading`: reads fields of any type. The objects are written by tenants, so nothing here may fail because of
  them, and no text may control the terminal or exceed its limit.
* :mod:`.kind_view`: how people see the objects of a kind, and the other objects that their summaries depend on. A
  module for each kind has its views; :mod:`.pods` is what they share.
* :mod:`.overview`: the :class:`Overview`.
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
