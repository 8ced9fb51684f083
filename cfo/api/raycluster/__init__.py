"""Facts about RayClusters that controllers and webhooks share.

Everything here is pure: :mod:`.cluster` reads fields of a RayCluster, :mod:`.naming` derives the names of its objects,
and :mod:`.kinds` has the GVK constants.
"""
