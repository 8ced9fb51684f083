"""AppWrappers: any resources as one unit, queued, created, watched over, retried and cleaned up.

:mod:`.transition` is the state machine, pure: from an AppWrapper and what was seen of its components, pods and nodes
to what to do and what to write. It stands on :mod:`.settings` (periods, limits, exit codes), :mod:`.status` (conditions
and their clocks), :mod:`.pods`, :mod:`.components`, :mod:`.injection` and :mod:`.deletion`. :mod:`.reconciler` looks,
asks, and writes; :mod:`.kinds` and :mod:`.nodes` are what it hears with.
"""

from cfo.controllers.appwrapper.names import FIELD_MANAGER
from cfo.controllers.appwrapper.setup import rules, setup

__all__ = ["FIELD_MANAGER", "rules", "setup"]
