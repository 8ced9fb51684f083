"""The state of RayClusters and of the operator's other kinds, for people: what ``cfo status`` and the views show.

Everything here only reads. For each object there is one :class:`Summary`: its state, facts, and what is wrong with it
and how to fix that. The functions that compute them are pure; :class:`Overview` watches the objects, and computes again
only what has changed.

* :mod:`.summary`: what is known about an object. :mod:`.related`: the other objects that it depends on.
* :mod:`.reading`: reads fields of any type. The objects are written by tenants, so nothing here may fail because of
  them, and no text may control the terminal or exceed its limit.
* :mod:`.raycluster` (with :mod:`.exposure` and :mod:`.pods`), :mod:`.appwrapper`, :mod:`.flux`, :mod:`.inferencestack`:
  the kinds. :mod:`.dispatch` selects among them.
* :mod:`.watch`: the :class:`Overview`.
"""

from cfo.console.summaries.dispatch import KINDS, summarize
from cfo.console.summaries.related import RELATED_KINDS, Related
from cfo.console.summaries.summary import Condition, Level, Problem, Summary, WarningEvent
from cfo.console.summaries.watch import Change, ChangeType, Overview, interruption

__all__ = [
    "KINDS",
    "RELATED_KINDS",
    "Change",
    "ChangeType",
    "Condition",
    "Level",
    "Overview",
    "Problem",
    "Related",
    "Summary",
    "WarningEvent",
    "interruption",
    "summarize",
]
