"""What is known of an AppWrapper's pods follows from the cache and the last list of its namespace."""

from __future__ import annotations

import pytest

from cfo.controllers.appwrapper.active_pods import ActivePods, Lineage, LineageEnd
from cfo.controllers.appwrapper.owners import Owner
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge, knowledge_of_pods
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime.cache import OwnerReference
from cfo.runtime.objects.kinds import DEPLOYMENT, JOB
from cfo.runtime.objects.unstructured import GVK

REPLICA_SET = GVK("apps", "v1", "ReplicaSet")


@pytest.mark.parametrize("is_listed", [False, True])
def test_complete_cache_has_all_pods_with_the_label(*, is_listed: bool) -> None:
    knowledge = knowledge_of_pods(is_cached=True, is_listed=is_listed)
    assert knowledge is PodKnowledge.CACHED
    assert not knowledge.lacks_pods


def test_cached_pods_may_have_owners_that_cannot_be_read() -> None:
    knowledge = knowledge_of_pods(is_cached=True, has_unknown_owners=True)
    assert knowledge is PodKnowledge.OWNERS_UNKNOWN


@pytest.mark.parametrize(
    ("is_listed", "has_unknown_owners", "expected", "lacks_pods"),
    [
        (False, False, PodKnowledge.LEFT_OUT, True),
        (True, True, PodKnowledge.OWNERS_UNKNOWN, True),
        (True, False, PodKnowledge.LISTED, False),
    ],
)
def test_list_with_all_owners_has_what_the_cache_leaves_out(
    *, is_listed: bool, has_unknown_owners: bool, expected: PodKnowledge, lacks_pods: bool
) -> None:
    knowledge = knowledge_of_pods(
        is_cached=False, is_listed=is_listed, has_unknown_owners=has_unknown_owners
    )
    assert knowledge is expected
    assert knowledge.lacks_pods is lacks_pods


def meta(name: str, owner: str) -> PodMeta:
    reference = OwnerReference("apps/v1", "ReplicaSet", owner, owner, controller=True)
    return PodMeta(name=name, uid=name, owner_references=[reference])


@pytest.mark.parametrize("end", [LineageEnd.WRAPPER, LineageEnd.LOST_WRAPPER, LineageEnd.LOST])
def test_ancestor_of_a_pod_is_the_first_of_its_owners_that_is_known(end: LineageEnd) -> None:
    """That is its component, also if it was deleted."""
    owners = [Owner(REPLICA_SET, "replicas", "replicas"), Owner(DEPLOYMENT, "d", "component")]
    if end is not LineageEnd.LOST:
        owners.append(Owner(GVK("workload.codeflare.dev", "v1beta2", "AppWrapper"), "w", "wrapper"))
    lineage = Lineage(end, tuple(owners))
    pods = ActivePods(lineages={owners[0]: lineage})
    pods.add(meta("p", "replicas"), lineage)
    pods.add_succeeded(meta("q", "replicas"), lineage)
    own = pods.own_pods({"wrapper": "wrapper", "component": "component"})
    assert [(each.pod.name, each.ancestor) for each in own] == [
        ("p", "component"),
        ("q", "component"),
    ]
    assert pods.succeeded == {"q"}
    assert pods.own_pods({"other": "other"}) == []


def test_object_that_the_appwrapper_controls_is_known() -> None:
    owners = (
        Owner(REPLICA_SET, "replicas", "replicas"),
        Owner(JOB, "extra", "extra"),
        Owner(GVK("workload.codeflare.dev", "v1beta2", "AppWrapper"), "w", "wrapper"),
    )
    lineage = Lineage(LineageEnd.WRAPPER, owners)
    pods = ActivePods(lineages={owners[0]: lineage})
    pods.add(meta("p", "replicas"), lineage)
    (own,) = pods.own_pods({"wrapper": "wrapper"})
    assert (own.ancestor, own.owners, own.child) == ("wrapper", owners[:2], owners[1])


def test_owners_of_a_pod_that_is_known_itself_may_be_those_of_others() -> None:
    """Users can change the owners of a running pod; otherwise the operator deleted what another AppWrapper controls."""
    owners = (
        Owner(REPLICA_SET, "replicas", "replicas"),
        Owner(JOB, "foreign", "foreign"),
        Owner(GVK("workload.codeflare.dev", "v1beta2", "AppWrapper"), "v", "another"),
    )
    lineage = Lineage(LineageEnd.WRAPPER, owners)
    pods = ActivePods(lineages={owners[0]: lineage})
    pods.add(meta("p", "replicas"), lineage)
    (own,) = pods.own_pods({"wrapper": "wrapper", "p": "wrapper"})
    assert (own.ancestor, own.owners, own.child) == ("wrapper", (), None)
