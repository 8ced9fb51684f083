"""Facts about RayClusters that controllers and webhooks share.

Everything here is pure: :mod:`.cluster` reads fields of a RayCluster, :mod:`.names` has the GVK constants and derives
the names of its objects, and :mod:`.facts` decides which operator acts on a RayCluster.
"""
