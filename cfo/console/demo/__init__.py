"""``cfo run --embedded``: run the operator on an embedded control plane, to try it without a cluster.

Needs the extra ``embedded``. Nothing in this package is used on a real cluster.

* :mod:`.run`: start control plane and operator, apply manifests, wait until they have settled.
* :mod:`.raycluster_nodes`: a fake KubeRay operator, which creates the pods of RayClusters.
* :mod:`.crds`: the CRDs of other projects that the operator needs.
"""
