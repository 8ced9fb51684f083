"""Several clusters in one manager, with the terms of `multicluster-runtime`_.

A provider engages clusters, for example one for each Secret with a kubeconfig, and disengages them. A controller whose
builder selects them has one queue for the requests of all clusters; each request has the name of its cluster. Every
cluster has its own connections, cache and clients. All of them are served by the leader of the local cluster, whose
Lease also fences the writes to the others.

A cluster that does not respond delays neither the start nor the stop of the manager, and no other cluster.

.. _multicluster-runtime: https://github.com/kubernetes-sigs/multicluster-runtime
"""
