"""The fault campaign: an installed operator with the work of several tenants, and what happens to it in a real cluster.

``make faults`` (``python -m test.faults``) runs every fault on the real etcd, kube-apiserver and
kube-controller-manager, and prints what was promised and what was seen. ``test/integration/test_faults_campaign.py``
runs those that need no programs on the embedded control plane.

* :mod:`test.faults.trial`: the installation, its replicas, and the tenants' objects on which a fault is tried.
* :mod:`test.faults.writes`: what the replicas wrote, by the audit log of the API server.
* :mod:`test.faults.campaign`: causes a fault, and compares what was seen with the promise.
* :mod:`test.faults.scenarios`: the faults with their promises.
"""
