"""``cfo run --embedded``: run the operator on an embedded control plane, to try it without a cluster.

Needs the extra ``embedded``. Nothing in this package is used on a real cluster.
"""
