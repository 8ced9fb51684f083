"""Facts about RayClusters that controllers and webhooks share.

Everything here is pure: :mod:`.cluster` reads fields of a RayCluster, :mod:`.naming` derives the names of its objects,
:mod:`.kinds` has the GVK constants, and :mod:`.responsibility` decides which operator acts on a RayCluster.
"""
