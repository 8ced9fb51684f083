"""``cfo migrate``: move RayClusters from the Go operator or from this one to KubeRay 1.7, or to RHOAI 3.

Nothing is kept outside the cluster: each run observes the cluster, plans, and writes. A run that was interrupted at any
write is continued by the next one.
"""
