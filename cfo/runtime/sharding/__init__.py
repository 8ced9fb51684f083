"""Shards of the objects of a cluster, and their distribution over active replicas; pure functions and values.

* :mod:`.ranges`: which shard an object belongs to, and which objects a replica is responsible for.
"""
