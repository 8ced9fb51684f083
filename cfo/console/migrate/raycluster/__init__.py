"""``cfo migrate``: move RayClusters from the Go operator or from this one to KubeRay 1.7, or to RHOAI 3.

Nothing is kept outside the cluster: each run observes the cluster, plans, and writes. A run that was interrupted at any
write is continued by the next one. The undo file only serves ``cfo migrate undo``.

* :mod:`.injected`: the entries of pod templates that a webhook of either operator injected, and their exact removal.
* :mod:`.children`: which objects of a RayCluster are the operator's.
* :mod:`.targets`: what a RayCluster becomes: KubeRay's own fields, or the annotation of RHOAI 3.
* :mod:`.policies`: KubeRay's ``networkPolicy``, and the ports that are closed.
* :mod:`.planning`: the steps for one object; :mod:`.takeover`: what this operator changes when it replaces the Go
  operator. Both are pure functions.
* :mod:`.observation`: read the cluster, with operators and webhooks that would revert the migration.
* :mod:`.applying`: execute steps. :mod:`.undoing`: restore what the undo file recorded.
* :mod:`.session`: one run over all objects. :mod:`.migrate_command`, :mod:`.command_options`: ``cfo
  migrate``.
"""

from cfo.console.migrate.raycluster.planning import Options, plan_cluster
from cfo.console.migrate.raycluster.targets import Target
from cfo.console.migrate.steps import ObjectPlan

__all__ = ["ObjectPlan", "Options", "Target", "plan_cluster"]
