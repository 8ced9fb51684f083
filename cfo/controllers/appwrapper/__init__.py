"""Controllers of AppWrappers: resources that are queued, created, monitored, retried and cleaned up as one unit.

:mod:`.transition` is the state machine: a pure function that maps an AppWrapper and the observed state of its
components, pods and nodes (:mod:`.decision`) to actions and a new status. It builds on :mod:`.settings` (periods,
limits, exit codes), :mod:`.status` (conditions and their times), :mod:`.pods`, :mod:`.components`, :mod:`.injection`
and :mod:`.deletion`. :mod:`.admission` decides whether the webhook has checked an AppWrapper. :mod:`.reconciler`
executes decisions; it observes with :mod:`.observer` and creates components with :mod:`.creation`.
:mod:`.component_informers`, :mod:`.nodes` and :mod:`.pod_owners` read from informers and the API server. :mod:`.kueue`
creates Kueue's Workloads, and :mod:`.slack_queue` adjusts a ClusterQueue to the health of the nodes.
"""

from cfo.controllers.appwrapper.setup import kueue_rules, rules, setup

__all__ = ["kueue_rules", "rules", "setup"]
