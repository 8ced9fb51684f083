"""Which kinds each replica caches in part if the replicas share the namespaces (``sharding.shards``).

The controllers of RayClusters and AppWrappers are sharded: everything that belongs to one of these objects is in its
namespace. Ingresses are kept whole nevertheless, because those of any namespace can claim a host. What needs all
objects runs on the leader: the queue of FluxJobs, which compares the jobs of all namespaces, with the controllers that
it notifies in the same process, and the controllers of InferenceStacks, which wait for Leases of their own. So an
operator with these keeps the kinds that they use whole.
"""

from __future__ import annotations

from typing import Final

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.kinds import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.config import OperatorConfiguration
from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    INGRESS,
    JOB,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    ShardingOptions,
)

__all__ = ["sharding_options"]

_DIVIDED: Final = (RAY_CLUSTER, APPWRAPPER, NETWORK_POLICY, POD, SECRET, SERVICE, SERVICE_ACCOUNT)
_FLUX: Final = (FLUX_SETUP, FLUX_JOB, MINICLUSTER, CONFIG_MAP, JOB, POD, SECRET, SERVICE)


def sharding_options(configuration: OperatorConfiguration) -> ShardingOptions | None:
    """Return the options of sharding for an operator with ``configuration``; ``None`` if only the leader reconciles."""
    sharding = configuration.sharding
    if sharding.shards == 1:
        return None
    from cfo.controllers import inferencestack
    from cfo.controllers.raycluster.node_signer import CERTIFICATE_SIGNING_REQUEST

    # Webhooks of all replicas read the labels of all namespaces. A host belongs to the first Ingress of any namespace.
    whole: set[GVK] = {NAMESPACE, INGRESS}
    if configuration.flux.enabled:
        whole |= {*_FLUX}
    if configuration.inference_stack.enabled:
        whole |= {*inferencestack.CACHED_KINDS}
    if configuration.kuberay.ca.issuer == "certificateSigningRequest":
        # The requests are cluster-scoped: each can need the CA of any namespace, and their number is limited in all.
        whole |= {SECRET, CERTIFICATE_SIGNING_REQUEST}
    return ShardingOptions(
        shards=sharding.shards,
        key_hash="fnv1a" if sharding.select_on_server else "mixed",
        divided_kinds=[kind for kind in _DIVIDED if kind not in whole],
        whole_kinds=sorted(whole),
    )
