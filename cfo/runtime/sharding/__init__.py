"""Shards of the objects of a cluster, and their distribution over active replicas; pure functions and values.

* :mod:`.ranges`: which shard an object belongs to, and which objects a replica is responsible for.
* :mod:`.record`: what the replicas store in their Lease.
* :mod:`.assignment`: how many shards each replica should own, and which ones it takes or gives away.
* :mod:`.membership`: what a replica may conclude from the record, and when it has lost its shards.
"""
