"""Facts about RayClusters that controllers and webhooks share: what one asks for, and what its objects are called.

All of it is pure, and none of it decides anything: :mod:`.cluster` reads a RayCluster, :mod:`.naming` derives names
from it, :mod:`.kinds` says which kinds are meant.
"""
