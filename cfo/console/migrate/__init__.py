"""``cfo migrate``: move RayClusters from the Go operator or from this one to KubeRay 1.7, or to RHOAI 3.

Nothing is kept outside the cluster: each run observes the cluster, plans, and writes. A run that was interrupted at any
write is continued by the next one. The undo file only serves ``cfo migrate undo``.

* :mod:`.steps`: the types of plans, and how they are printed.
* :mod:`.injected`: the entries of pod templates that a webhook of either operator injected, and their exact removal.
* :mod:`.children`: which objects of a RayCluster are the operator's.
* :mod:`.targets`: what a RayCluster becomes: KubeRay's own fields, or the annotation of RHOAI 3.
* :mod:`.planning`: the steps for one object; pure functions.
* :mod:`.observation`: read the cluster, with operators and webhooks that would revert the migration.
* :mod:`.applying`: execute steps. :mod:`.undoing`: the undo file, and how it is restored.
* :mod:`.session`: one run over all objects. :mod:`.migrate_command`: the command.
"""
