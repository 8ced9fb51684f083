"""Several active replicas, each of which reconciles a part of the objects.

The model is in :mod:`cfo.runtime.sharding`; this package runs it:

* :mod:`.options`: the number of shards, and which kinds are divided.
* :mod:`.elector`: the member of the ring. It renews its membership in the Lease, and is the write gate of each shard.
* :mod:`.requests`: which requests the controllers may reconcile, and the end of the running ones of a shard.
* :mod:`.handover`: starts the shards that this replica gains, and ends the work on those that it should give away.
* :mod:`.setup`: adds all of this to a manager.
"""
