"""The ledger of the queue: what holds quota, who is admitted, and what the statuses are to say."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, datetime
from random import Random
from typing import Any
from unittest.mock import patch

import anyio
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, MINICLUSTER_LABEL
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_requests import _remembered
from cfo.controllers.flux.fluxsetup import START, FluxSetupReconciler
from cfo.controllers.flux.metrics import decision_seconds
from cfo.controllers.flux.queue.admissions import Admissions
from cfo.controllers.flux.queue.governance import Governance
from cfo.controllers.flux.queue.ledger import Ledger, Totals
from cfo.controllers.flux.queue.model import PodCounts, ServicePod, position_changed
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime import Channel, SystemClock
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.objects.kinds import JOB, NAMESPACE, POD, PRIORITY_CLASS
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, key_of
from test.support.flux_environment import flux_job, flux_setup
from test.support.flux_queue import NOW, SETUP, Queue, handlers, met


def test_admissions_count_before_they_are_visible_and_become_visible_in_order() -> None:
    queue = Queue(max_size=4)
    for name in ("a", "b", "c"):
        queue.put_job(name)
    assert queue.decide() == Totals(pods=4, admitted=2, pending=1)
    assert (queue.reason("a"), queue.reason("b"), queue.reason("c")) == (
        "Admitted",
        "",
        "InsufficientQuota",
    )
    assert queue.decide() == Totals(pods=4, admitted=2, pending=1)
    queue.put_job("a", "QuotaReserved")
    assert (queue.reason("a"), queue.reason("b")) == ("", "Admitted")


def test_failed_admission_is_retried_while_the_next_one_overtakes_it() -> None:
    queue = Queue(max_size=4)
    for name in ("a", "b"):
        queue.put_job(name)
    queue.decide()
    queue.notified.clear()
    for _ in range(3):
        queue.ledger.postpone(NamespacedName("ns", "a"))
    assert queue.notified == [NamespacedName("ns", "b")]
    assert (queue.reason("a"), queue.reason("b")) == ("Admitted", "Admitted")


def test_admissions_of_one_setup_do_not_wait_for_those_of_another() -> None:
    admissions = Admissions()
    one = NamespacedName("one", "setup")
    two = NamespacedName("two", "setup")
    first, second, third = (NamespacedName("ns", name) for name in ("a", "b", "c"))
    admissions.add(first, one)
    admissions.add(second, one)
    admissions.add(third, two)
    assert [admissions.may_write(job) for job in (first, second, third)] == [True, False, True]
    assert admissions.remove(first) == [second]
    assert admissions.may_write(second)
    assert admissions.remove(second) == []
    assert admissions.remove(second) == []
    assert admissions.first(two) == [third]


def test_missed_deletion_of_a_job_is_noticed_when_it_is_read() -> None:
    queue = Queue(max_size=2)
    queue.put_job("phantom")
    queue.decide()
    queue.put_job("victim")
    assert queue.decide().pending == 1
    queue.ledger.forget(NamespacedName("ns", "phantom"), "uid of an earlier one")
    assert queue.decide().pending == 1
    phantom = NamespacedName("ns", "phantom")
    queue.ledger.forget(phantom, queue.ledger.uid_of(phantom))
    assert queue.decide_again == [SETUP]
    queue.decide()
    assert queue.reason("victim") == "Admitted"
    assert queue.ledger.uid_of(phantom) == ""


def test_withdrawn_admission_holds_no_quota() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a")
    queue.decide()
    queue.ledger.withdraw(NamespacedName("ns", "a"))
    assert queue.reason("a") == ""
    assert queue.decide().admitted == 1  # by the next decision


@pytest.mark.parametrize("change", ["deleted", "changed", "suspended"])
def test_admission_of_a_job_that_changed_is_forgotten(change: str) -> None:
    queue = Queue(max_size=2)
    queue.put_job("a")
    queue.decide()
    if change == "deleted":
        queue.remove(FLUX_JOB, "a")
    else:
        spec = {"suspend": True} if change == "suspended" else {"size": 1}
        queue.put(
            FLUX_JOB,
            {
                **flux_job("a", **spec),
                "metadata": {"name": "a", "namespace": "ns", "generation": 2},
            },
        )
    assert queue.decide().pods == 0
    assert queue.verdict("a") is None


def test_quota_is_held_until_the_last_pod_of_a_deleted_job_has_ended() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a", "QuotaReserved")
    queue.put_cluster("a", size=2)
    queue.put_batch_job("a", parallelism=2)
    queue.put_pod("a-0", "a")
    queue.put_pod("a-1", "a")
    queue.put_job("b")
    for gvk in (FLUX_JOB, MINICLUSTER, JOB):
        queue.remove(gvk, "a")
        assert queue.decide().pods == 2
        assert queue.reason("b") == "InsufficientQuota"
    queue.put_pod("a-0", "a", "Succeeded")
    assert queue.decide().pods == 1
    assert queue.reason("b") == "InsufficientQuota"
    queue.put_pod("a-1", "a", "Failed")
    queue.decide()
    assert queue.reason("b") == "Admitted"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_hold_nothing_of_others(phase: str) -> None:
    """Any user can keep many of them, and a kubelet lets one fail that is larger than its node."""
    queue = Queue(max_size=2, resources={"cpu": "4"})
    spec = {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1000000"}}}]}
    for number in range(8):
        queue.put_pod(
            f"ghost-{number}", "ghost", phase, spec=spec, conditions=[met("PodScheduled")]
        )
    queue.put_job("a")
    assert queue.decide().pods == 2
    assert queue.reason("a") == "Admitted"


@pytest.mark.parametrize("gvk", [FLUX_JOB, POD])
def test_object_for_which_the_cache_has_no_room_holds_its_quota(gvk: GVK) -> None:
    """A tenant can let the cache leave out any object of its namespace."""
    queue = Queue(max_size=2)
    if gvk == FLUX_JOB:
        queue.put_job("a", "QuotaReserved")
    else:
        queue.put_pod("a", "a")
    before = queue.decide().pods
    assert before > 0
    entry = queue.entries[gvk, NamespacedName("ns", "a")]
    handlers(queue.ledger)[gvk](Event(EventType.DELETED, entry.key, entry, None, left_out=entry))
    assert queue.decide().pods == before
    queue.remove(gvk, "a")
    assert queue.decide().pods == 0


def test_setup_for_which_the_cache_has_no_room_still_governs() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a")
    entry = queue.entries[FLUX_SETUP, SETUP]
    queue.ledger.on_setup(Event(EventType.DELETED, SETUP, entry, None, left_out=entry))
    assert queue.decide() == Totals(pods=2, admitted=1)
    queue.remove(FLUX_SETUP, "setup", "operator")
    assert queue.decide() == Totals()


def changed_setup(queue: Queue, name: str, **spec: Any) -> list[NamespacedName]:
    """Return the setups that are enqueued when a tenant creates or changes a FluxSetup."""
    key = NamespacedName("ns", name)
    old = queue.entries.get((FLUX_SETUP, key))
    number = name.removeprefix("s")
    metadata = {"uid": name, "creationTimestamp": f"2026-01-01T00:{number}Z"}
    obj = flux_setup(name, "ns", **spec)
    obj["metadata"] |= metadata
    entry = EntryDecoder(FLUX_SETUP).decode(orjson.dumps(obj))
    queue.entries[FLUX_SETUP, key] = entry
    return queue.ledger.on_setup(Event(EventType.UPDATED, key, old, entry))


def deleted_setup(queue: Queue, name: str) -> list[NamespacedName]:
    """Return the setups that are enqueued when a FluxSetup is deleted."""
    entry = queue.entries.pop((FLUX_SETUP, NamespacedName("ns", name)))
    return queue.ledger.on_setup(Event(EventType.DELETED, entry.key, entry, None))


def test_setups_of_a_tenant_cost_others_little_time() -> None:
    """Each event enqueued all FluxSetups: 10,000 of them took the event loop 48 s."""
    queue = Queue()
    names = [f"s{number // 60:02}:{number % 60:02}" for number in range(300)]
    for name in names:
        assert len(changed_setup(queue, name)) <= 102
    newest = NamespacedName("ns", names[-1])
    for name in names[:-1]:
        assert queue.ledger.replacement_of(NamespacedName("ns", name)) == newest
    assert changed_setup(queue, names[-1]) == []  # its status was written
    assert changed_setup(queue, names[-1], max_size=7) == [newest]
    assert changed_setup(queue, names[0], max_size=7) == [NamespacedName("ns", names[0])]
    for name in reversed(names[1:]):
        assert NamespacedName("ns", name) in deleted_setup(queue, name)
    assert queue.ledger.replacement_of(NamespacedName("ns", names[0])) is None
    queue.put_job("a")
    assert queue.ledger.decide(NamespacedName("ns", names[0]), NOW).admitted == 1


def test_all_setups_of_an_administrator_govern() -> None:
    queue = Queue()
    for number in range(150):
        selector = {"matchLabels": {"team": str(number)}}
        queue.put(
            FLUX_SETUP,
            flux_setup(f"team-{number}", "operator", namespaceSelector=selector, max_size=2),
        )
        labels = {"team": str(number)}
        queue.put(NAMESPACE, {"metadata": {"name": f"ns-{number}", "labels": labels}})
    for number in range(150):
        setup = queue.ledger.setup(NamespacedName("operator", f"team-{number}"))
        assert setup is not None
        assert queue.ledger._governance.governor(f"ns-{number}") == setup


def test_deleted_setup_is_enqueued_so_that_its_reconciler_forgets_it() -> None:
    """A tenant can create and delete FluxSetups with other names all the time."""
    queue = Queue()
    changed_setup(queue, "s00:00")
    assert deleted_setup(queue, "s00:00") == [NamespacedName("ns", "s00:00")]
    changed_setup(queue, "s00:01", queueingStrategy="Wrong")
    assert deleted_setup(queue, "s00:01") == [NamespacedName("ns", "s00:01")]


def test_events_of_a_namespace_without_a_setup_do_not_determine_all_governors_again() -> None:
    """An operator that is limited to some namespaces may not read Namespaces."""
    queue = Queue()
    queue.remove(FLUX_SETUP, "setup", "operator")
    queue.put_job("a")
    with patch.object(Governance, "govern", side_effect=AssertionError):
        queue.put_job("b")


def governed_again(queue: Queue, gvk: GVK, obj: Object) -> list[str]:
    """Return the namespaces whose governors are determined again when an object is put."""
    namespaces: list[str] = []
    govern = Governance.govern

    def record(governance: Governance, namespace: str, *args: Any) -> list[NamespacedName]:
        namespaces.append(namespace)
        return govern(governance, namespace, *args)

    with patch.object(Governance, "govern", record):
        queue.put(gvk, obj)
    return namespaces


def test_change_determines_only_the_governors_of_namespaces_that_it_concerns() -> None:
    queue = Queue()
    for number in range(30):
        queue.put(NAMESPACE, {"metadata": {"name": f"ns-{number}", "labels": {}}})
    assert governed_again(queue, FLUX_SETUP, flux_setup("own", "ns-1")) == ["ns-1"]
    labelled = {"metadata": {"name": "ns-2", "labels": {"team": "x"}}}
    assert governed_again(queue, NAMESPACE, labelled) == ["ns-2"]
    selector = {"matchLabels": {"team": "x"}}
    selecting = flux_setup("team", "operator", namespaceSelector=selector, max_size=2)
    assert governed_again(queue, FLUX_SETUP, selecting) == ["operator", "ns-2"]
    assert queue.ledger._governance.governors["ns-2"] == NamespacedName("operator", "team")


def expected_governors(
    setups: dict[str, Object], namespaces: dict[str, str]
) -> dict[str, NamespacedName]:
    """Return which setup governs each namespace, by the rules for all of them; the value is the team."""
    found = {}
    newest_first = sorted(
        setups.values(), key=lambda item: item["metadata"]["creationTimestamp"], reverse=True
    )
    for namespace, team in namespaces.items():
        local = [item for item in newest_first if item["metadata"]["namespace"] == namespace]
        selecting = [
            item
            for item in newest_first
            if item["spec"].get("namespaceSelector") == {"matchLabels": {"team": team}}
        ]
        for item in (*local, *selecting)[:1]:
            found[namespace] = key_of(item)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_governors_after_any_changes_are_those_of_all_rules(seed: int) -> None:
    random = Random(seed)
    queue = Queue()
    queue.remove(FLUX_SETUP, "setup", "operator")
    setups: dict[str, Object] = {}
    namespaces: dict[str, str] = {}
    for number in range(100):
        name = random.choice("abcde")
        namespace = random.choice(("one", "two", "three", "operator"))
        if random.random() < 0.4:
            team = random.choice("xyz")
            namespaces[namespace] = team
            queue.put(NAMESPACE, {"metadata": {"name": namespace, "labels": {"team": team}}})
        elif name in setups:
            removed = setups.pop(name)
            queue.remove(FLUX_SETUP, name, removed["metadata"]["namespace"])
        else:
            spec: dict[str, Any] = {}
            if namespace == "operator" and random.random() < 0.8:
                spec = {"namespaceSelector": {"matchLabels": {"team": random.choice("xyz")}}}
            obj = flux_setup(name, namespace, max_size=number + 1, **spec)
            obj["metadata"]["creationTimestamp"] = (
                f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
            )
            setups[name] = obj
            queue.put(FLUX_SETUP, obj)
        governance = queue.ledger._governance
        expected = expected_governors(setups, namespaces)
        governors = {name: governance.governors.get(name) for name in namespaces}
        assert governors == {name: expected.get(name) for name in namespaces}


def test_queue_label_frees_no_quota_of_an_admitted_job() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a", "QuotaReserved")
    queue.put_cluster("a", size=2)
    queue.put_job("b")
    queue.put_job("a", "QuotaReserved", labels={QUEUE_NAME_LABEL: "x"})
    assert queue.decide().pods == 2
    queue.put_job("a", "QuotaReserved")
    queue.put_cluster("a", size=2, jobLabels={QUEUE_NAME_LABEL: "x"})
    assert queue.decide().pods == 2
    assert queue.reason("b") == "InsufficientQuota"


def test_job_that_gets_a_queue_label_before_its_admission_is_visible_is_left_to_kueue() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a")
    queue.decide()
    queue.put_job("a", labels={QUEUE_NAME_LABEL: "x"})
    assert queue.reason("a") == "WaitingForKueue"
    assert queue.decide().pods == 0


def test_taken_name_hides_no_missing_setup() -> None:
    queue = Queue()
    queue.put_cluster("a", size=1, owned=False)
    taken = "MiniCluster a exists and does not belong to this FluxJob"

    def message(**labels: str) -> str:
        queue.put_job("a", labels=labels)
        verdict = queue.verdict("a")
        assert verdict is not None
        assert verdict.reason == "NameTaken"
        return verdict.message

    assert message() == taken
    queue.remove(FLUX_SETUP, SETUP.name, SETUP.namespace)
    assert message() == f"{taken}; in addition, no FluxSetup covers namespace ns"
    assert message(**{QUEUE_NAME_LABEL: "x"}) == taken


def test_minicluster_with_a_flux_job_of_another_name_as_owner_does_not_count_as_releasing() -> None:
    queue = Queue(max_size=2, preemption="LowerPriority")
    owner = {
        "apiVersion": FLUX_JOB.api_version,
        "kind": "FluxJob",
        "name": "a",
        "uid": "uid-a",
        "controller": True,
    }
    metadata: Object = {"name": "evil", "namespace": "ns", "ownerReferences": [owner]}
    queue.put(MINICLUSTER, {"metadata": metadata, "spec": {"size": 1}})
    queue.put_pod("evil-0", "evil")
    queue.put_job("a", "QuotaReserved", size=1)
    queue.put_cluster("a", size=1)
    queue.put_job("b", size=1, priority=1)
    queue.decide()
    assert queue.reason("a") == "Preempted"


@pytest.mark.parametrize(("seconds", "reason"), [(50, "Admitted"), (51, "BehindOtherJobs")])
def test_deadline_that_was_raised_in_the_minicluster_does_not_delay_the_planned_end(
    seconds: int, reason: str
) -> None:
    queue = Queue(max_size=3, queueingStrategy="Backfill")
    status = {
        "jobid": "a",
        "startTime": datetime.fromtimestamp(NOW - 50, UTC).isoformat(),
        "conditions": [met("QuotaReserved")],
    }
    queue.put(FLUX_JOB, {**flux_job("a", deadlineSeconds=100), "status": status})
    queue.put_cluster("a", size=2, deadlineSeconds=int(NOW))
    queue.put_job("b", size=3)
    queue.put_job("c", size=1, deadlineSeconds=seconds)
    queue.decide()
    assert queue.reason("c") == reason


def test_pod_counts_by_its_label_with_any_controller_or_none() -> None:
    """Users can write and remove owners, so they prove nothing."""
    queue = Queue(max_size=2)
    queue.put_pod("a-0", "a", owned=False)
    assert queue.decide().pods == 1


def listed(name: str, uid: str = "1") -> PodMeta:
    """Return a pod of a list."""
    return PodMeta(name, uid)


@pytest.mark.parametrize("end", ["deleted or ended", "replaced", "seen to end"])
def test_pod_that_loses_its_label_holds_quota_until_it_has_ended(end: str) -> None:
    queue = Queue(max_size=2)
    queue.put_job("a", "QuotaReserved", size=1)
    queue.put_pod("a-0", "a", uid="1")
    queue.lose("a-0")
    assert queue.lost == [NamespacedName("", "ns")]
    queue.remove(FLUX_JOB, "a")
    assert queue.decide().pods == 1
    queue.settle([listed("a-0")])
    assert queue.decide().pods == 1
    if end == "deleted or ended":
        queue.settle()
    elif end == "replaced":
        queue.settle([listed("a-0", "2")])
    else:
        queue.put_pod("a-0", "a", "Failed", uid="1")
    assert queue.decide().pods == 0
    assert not queue.ledger.has_lost_pods("ns")


def test_pod_that_loses_its_label_before_it_has_a_node_is_not_read() -> None:
    queue = Queue(max_size=2)
    queue.put_pod("a-0", "a", "Pending", uid="1")
    queue.lose("a-0")
    assert queue.lost == []
    assert queue.decide().pods == 0


def test_relabelled_pod_counts_for_its_first_minicluster_until_it_is_deleted() -> None:
    queue = Queue(max_size=2)
    queue.put_pod("a-0", "a", uid="1")
    queue.put_pod("a-0", "b", uid="1")
    queue.put_job("a", "QuotaReserved", "Evicted", size=1)
    assert not queue.ledger.is_drained(NamespacedName("ns", "a"))
    assert queue.decide().pods == 1
    queue.remove(POD, "a-0")
    assert queue.ledger.is_drained(NamespacedName("ns", "a"))


def test_pod_that_has_ended_is_not_read_when_it_is_deleted() -> None:
    queue = Queue(max_size=2)
    queue.put_pod("a-0", "a", "Succeeded")
    queue.remove(POD, "a-0")
    assert queue.lost == []


def test_list_settles_only_the_pods_that_were_lost_before_it_began() -> None:
    queue = Queue(max_size=4)
    for name in ("a-0", "a-1"):
        queue.put_pod(name, "a", uid=name)
    queue.lose("a-0")
    before = queue.ledger.lost_pods("ns")
    queue.put_pod("a-0", "a", uid="replaced")
    queue.lose("a-0")
    queue.lose("a-1")
    queue.ledger.settle_lost("ns", before, [])
    assert queue.decide().pods == 2
    queue.settle()
    assert queue.decide().pods == 0


def test_thousands_of_lost_pods_hold_what_those_of_them_request_that_are_active() -> None:
    queue = Queue(max_size=4000, resources={"cpu": "12"})
    small: Object = {"containers": [{"resources": {"requests": {"cpu": "1m"}}}]}
    large: Object = {"containers": [{"resources": {"requests": {"cpu": "4"}}}]}
    for number in range(3000):
        name = f"pod-{number}"
        queue.put_pod(name, name, uid=name, spec=large if number == 2500 else small)
        queue.lose(name)
    assert queue.decide().pods == 3000
    plain = [listed(f"plain-{number}", f"plain-{number}") for number in range(1000)]
    queue.settle([*plain, listed("pod-2500", "pod-2500"), listed("pod-7", "pod-7")])
    assert queue.decide().pods == 2
    queue.put_job("fits", size=1, resources={"requests": {"cpu": "7"}})
    queue.put_job("waits", size=1, resources={"requests": {"cpu": "1"}})
    queue.decide()
    assert (queue.reason("fits"), queue.reason("waits")) == ("Admitted", "InsufficientQuota")
    queue.settle(plain)
    assert queue.decide().admitted == 2
    assert not queue.ledger.has_lost_pods("ns")


def test_condition_without_a_time_hides_no_pod() -> None:
    """API servers encode a time that is not set as null."""
    queue = Queue(max_size=2)
    queue.put_pod("a-0", "a", conditions=[{"type": "x", "lastTransitionTime": None}])
    assert queue.decide().pods == 1


def test_objects_that_cannot_be_decoded_count_as_before() -> None:
    queue = Queue(max_size=4)
    queue.put_job("a", "QuotaReserved")
    queue.put_pod("b-0", "b", uid="1")
    assert queue.decide().pods == 3
    queue.put_job("a", "QuotaReserved", size="many")
    queue.put_pod("b-0", "b", uid="1", spec={"containers": "many"})
    assert queue.decide().pods == 3
    queue.put_pod("c-0", "c", spec={"containers": "many"})
    assert queue.decide().pods == 4
    for gvk, name in ((FLUX_JOB, "a"), (POD, "b-0"), (POD, "c-0")):
        queue.remove(gvk, name)
    assert queue.decide().pods == 0


def test_numbers_follow_jobs_that_are_not_in_the_queue() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a", suspend=True)
    assert queue.decide() == Totals(0, 0, 1)
    entry = queue.entries[FLUX_JOB, NamespacedName("ns", "a")]
    assert queue.ledger.on_job(Event(EventType.DELETED, entry.key, entry, None)) == [SETUP]
    assert queue.decide() == Totals()


def test_pods_that_have_ended_hold_no_quota_whether_their_minicluster_is_kept_or_not() -> None:
    queue = Queue(max_size=2)
    for cleanup in (True, False):
        queue.put_job("a", "JobFinished", template={"cleanup": cleanup})
        queue.put_cluster("a", size=2, conditions=[met("JobFinished")])
        queue.put_pod("a-0", "a", "Succeeded")
        assert queue.decide().pods == 0


def test_minicluster_created_by_hand_counts_with_the_pods_that_exist() -> None:
    queue = Queue(max_size=4)
    queue.put_job("a")
    queue.put_cluster("manual", size=1, maxSize=100_000, owned=False)
    queue.put_batch_job("manual", parallelism=100_000)
    assert queue.decide().pods == 2
    assert queue.reason("a") == "Admitted"
    for number in range(3):
        queue.put_pod(f"manual-{number}", "manual")
    queue.put_job("b")
    assert queue.decide() == Totals(pods=5, admitted=1, pending=1, without_job=3)
    assert queue.reason("b") == "InsufficientQuota"


def test_objects_that_users_create_in_the_name_of_others_hold_only_the_pods_that_exist() -> None:
    queue = Queue(max_size=4)
    queue.put_job("done", "JobFinished")
    queue.put_cluster("done", size=1, maxSize=100_000)
    queue.put(
        JOB, {"metadata": {"name": "labelled", "namespace": "ns"}, "spec": {"parallelism": 100_000}}
    )
    assert queue.decide().pods == 0


@pytest.mark.parametrize(
    "spec",
    [
        {"size": -1000},
        {"size": 1, "maxSize": -5},
        {"size": 1, "containers": [{"resources": {"requests": {"cpu": "-100"}}}]},
        {
            "size": 1,
            "containers": [{"resources": {"requests": {"cpu": "1e99999999999999999999999"}}}],
        },
        {"size": 1, "containers": [{"resources": {"limits": {"cpu": "1e-999999"}}}]},
    ],
)
def test_no_spec_increases_the_quota_or_stops_the_queue(spec: Object) -> None:
    queue = Queue(max_size=2, resources={"cpu": "1"})
    queue.put(MINICLUSTER, {"metadata": {"name": "bad", "namespace": "ns"}, "spec": spec})
    queue.put_job("a", size=3)
    assert queue.decide().pods >= 0
    assert queue.reason("a") == "TooLarge"


def test_objects_with_values_that_no_crd_allows_are_ignored() -> None:
    queue = Queue(max_size=2)
    queue.put(
        MINICLUSTER, {"metadata": {"name": "bad", "namespace": "ns"}, "spec": {"size": "many"}}
    )
    queue.put_job("a")
    queue.decide()
    assert queue.reason("a") == "Admitted"


def test_evicted_job_is_drained_when_its_job_is_suspended_and_its_pods_have_ended() -> None:
    queue = Queue()
    key = NamespacedName("ns", "a")
    queue.put_job("a", "QuotaReserved", "Evicted")
    queue.put_cluster("a", size=1)
    queue.put_batch_job("a", parallelism=1)
    queue.put_pod("a-0", "a")
    assert not queue.ledger.is_drained(key)
    queue.put(
        MINICLUSTER,
        {
            "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"size": 1, "suspend": True},
            "status": {"observedGeneration": 1},
        },
    )
    status = {"startTime": "2026-01-01T00:00:00Z", "conditions": [met("Suspended")]}
    queue.put_batch_job("a", parallelism=1, suspend=True, status=status)
    assert not queue.ledger.is_drained(key)
    queue.notified.clear()
    queue.remove(POD, "a-0")
    assert queue.ledger.is_drained(key)
    assert queue.notified == [key]


def put_pod_of(queue: Queue, name: str, **metadata: Any) -> None:
    """Add or change a pod of the Job of the MiniCluster ``a``, which has no node."""
    queue.put(POD, {"metadata": pod_metadata(name, **metadata)})


def pod_metadata(name: str, owner: str = "uid-a", **metadata: Any) -> Object:
    """Return the metadata of a pod of the MiniCluster ``a``; ``owner`` is the uid of its controller."""
    controller = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "a",
        "uid": owner,
        "controller": True,
    }
    labels = {MINICLUSTER_LABEL: "a"}
    return {
        "name": name,
        "namespace": "ns",
        "labels": labels,
        "ownerReferences": [controller],
        **metadata,
    }


@pytest.mark.parametrize("size", [1, 2, 3])
def test_admitted_job_is_reconciled_when_it_has_lost_a_pod_or_the_last_one(size: int) -> None:
    queue = Queue()
    key = NamespacedName("ns", "a")
    admitted = {**met("QuotaReserved"), "reason": "Admitted"}
    put_job_with(queue, "a", admitted)
    queue.put_cluster("a", size=size)
    queue.put_batch_job("a", parallelism=size)
    assert queue.ledger.pods_of(key) == PodCounts()
    put_pod_of(queue, "a-0")
    put_pod_of(queue, "a-1")
    assert queue.ledger.pods_of(key) == PodCounts(live=2, pending=2)
    queue.notified.clear()
    put_pod_of(queue, "a-0", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x/y"])
    assert queue.notified == ([key] if size == 2 else [])
    queue.notified.clear()
    queue.put(POD, {"metadata": pod_metadata("a-1"), "status": {"phase": "Failed"}})
    assert queue.ledger.pods_of(key) == PodCounts(ended=1)
    assert queue.notified == [key]


@pytest.mark.parametrize(
    ("phase", "counts"),
    [
        ("Pending", PodCounts(live=1, pending=1)),
        ("Running", PodCounts(live=1)),
        ("Unknown", PodCounts(live=1)),
        ("Succeeded", PodCounts(ended=1)),
    ],
)
def test_pods_that_have_not_started_are_counted(phase: str, counts: PodCounts) -> None:
    queue = Queue()
    key = NamespacedName("ns", "a")
    queue.put_cluster("a", size=1)
    queue.put_batch_job("a", parallelism=1)
    put_pod_of(queue, "a-0")
    queue.put(POD, {"metadata": pod_metadata("a-0"), "status": {"phase": phase}})
    assert queue.ledger.pods_of(key) == counts
    queue.remove(POD, "a-0")


COUNTED = {"example.com/gpu": "100", "cpu": "1000"}
GPUS = {"requests": {"example.com/gpu": "2", "cpu": "4", "memory": "8Gi"}}
OWN = PodCounts(live=1)
SMALL = PodCounts(small=1)


def requests_of(**amounts: str) -> Object:
    """Return the resources of a container that requests 2 GPUs and these amounts."""
    return {"requests": {"example.com/gpu": "2", **amounts}}


@pytest.mark.parametrize(
    ("owner", "requests", "counts"),
    [
        pytest.param("", GPUS, PodCounts(), id="no owner"),
        pytest.param("other", GPUS, PodCounts(), id="owner is another Job"),
        pytest.param(
            "uid-a", {"requests": {"cpu": "4", "example.com/gpu": "1"}}, SMALL, id="too few devices"
        ),
        pytest.param("uid-a", {}, SMALL, id="no requests"),
        pytest.param("uid-a", requests_of(cpu="1m"), SMALL, id="1m CPU"),
        pytest.param("uid-a", requests_of(cpu="999m"), SMALL, id="less than a quarter of the CPU"),
        pytest.param("uid-a", requests_of(cpu="1"), OWN, id="a quarter of the CPU, no memory"),
        pytest.param("uid-a", GPUS, OWN, id="a pod of the Job"),
    ],
)
@pytest.mark.parametrize("order", [("pod", "job"), ("job", "pod")])
def test_only_pods_of_the_job_with_its_requests_count_for_its_deadlines(
    owner: str, requests: Object, counts: PodCounts, order: tuple[str, str]
) -> None:
    """Any user can create other pods with the label, and name any controller."""
    queue = Queue(resources=COUNTED)
    key = NamespacedName("ns", "a")
    metadata = pod_metadata("a-0", owner)
    if not owner:
        del metadata["ownerReferences"]
    spec = {"containers": [{"resources": requests}]}
    status = {"phase": "Running", "conditions": list(SCHEDULED)}
    put_job_with(queue, "a", HELD, size=1, resources=GPUS)
    queue.put_cluster("a", size=1)
    for kind in order:
        if kind == "job":
            queue.put_batch_job("a", parallelism=1)
        else:
            queue.put(POD, {"metadata": metadata, "spec": spec, "status": status})
    assert queue.ledger.pods_of(key) == counts
    queue.notified.clear()
    queue.put_batch_job("a", parallelism=1, metadata={"uid": "recreated"})
    assert queue.ledger.pods_of(key) == PodCounts()
    assert (key in queue.notified) is bool(counts.live)
    queue.remove(FLUX_JOB, "a")
    assert queue.decide().pods == 1  # it occupies a node


def job_with_pod(queue: Queue, requests: Object, phase: str = "Running", **spec: Any) -> None:
    """Add an admitted FluxJob ``a`` with ``spec``, and the pod of its Job with these requests."""
    put_job_with(queue, "a", HELD, size=1, **spec)
    queue.put_cluster("a", size=1)
    queue.put_batch_job("a", parallelism=1)
    pod = {"containers": [{"resources": {"requests": requests}}]}
    queue.put(POD, {"metadata": pod_metadata("a-0"), "spec": pod, "status": {"phase": phase}})


@pytest.mark.parametrize(("cpu", "ended"), [("1m", 0), ("4", 1)])
def test_small_pod_that_has_ended_does_not_count(cpu: str, ended: int) -> None:
    queue = Queue(resources={"cpu": "1000"})
    job_with_pod(queue, {"cpu": cpu}, "Failed", resources={"requests": {"cpu": "4"}})
    assert queue.ledger.pods_of(NamespacedName("ns", "a")) == PodCounts(ended=ended)
    queue.remove(FLUX_JOB, "a")
    assert queue.decide().pods == 0


def test_pods_must_request_the_defaults_and_what_the_setup_counts() -> None:
    key = NamespacedName("ns", "a")
    queue = Queue(resources={"memory": "1Ti"})
    job_with_pod(queue, {"cpu": "1", "memory": "2Gi"})
    assert queue.ledger.pods_of(key) == OWN
    queue.notified.clear()
    view = {"image": "view", "resources": {"requests": {"cpu": "4", "memory": "16Gi"}}}
    setup = flux_setup(
        namespace="operator",
        namespaceSelector={},
        resources={"memory": "1Ti"},
        mini_cluster={"flux": {"container": view}},
    )
    queue.put(FLUX_SETUP, setup)
    assert queue.ledger.pods_of(key) == SMALL
    setup["spec"]["resources"] = {"pods": "100"}
    queue.put(FLUX_SETUP, setup)
    assert queue.ledger.pods_of(key) == OWN


SERVICE_GPUS = {"requests": {"example.com/gpu": "4", "cpu": "8"}}
SERVICES = [
    {"name": "db", "image": "i", "resources": SERVICE_GPUS},
    {"name": "web", "image": "i", "resources": {"limits": {"example.com/gpu": "4"}}},
]


def service_pod(owner: str, phase: str = "Running", **requests: str) -> Object:
    """Return a pod with this controller and these requests, of 8 GPUs by default."""
    amounts = {"cpu": "2", "example.com/gpu": "8", **requests}
    spec = {"containers": [{"resources": {"requests": amounts}}]}
    metadata = pod_metadata("a-services", owner)
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        pytest.param(service_pod("cluster-a"), ServicePod.STARTED, id="runs"),
        pytest.param(service_pod("cluster-a", "Pending"), ServicePod.PENDING, id="pending"),
        pytest.param(service_pod("cluster-a", "Succeeded"), ServicePod.ENDED, id="succeeded"),
        pytest.param(service_pod("cluster-a", "Failed"), ServicePod.ENDED, id="failed"),
        pytest.param(
            service_pod("cluster-a", **{"example.com/gpu": "7"}),
            ServicePod.SMALL,
            id="too few GPUs",
        ),
        pytest.param(service_pod("cluster-a", cpu="1"), ServicePod.SMALL, id="too little CPU"),
        pytest.param(
            service_pod("cluster-a", "Failed", cpu="1"), ServicePod.MISSING, id="small and ended"
        ),
        pytest.param(service_pod("other"), ServicePod.MISSING, id="of another MiniCluster"),
        pytest.param(service_pod("uid-a"), ServicePod.MISSING, id="of the Job"),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_only_the_service_pod_of_the_minicluster_with_its_requests_counts(
    pod: Object, state: ServicePod, is_first: bool
) -> None:
    queue = Queue(resources=COUNTED)
    key = NamespacedName("ns", "a")
    if is_first:
        queue.put(POD, pod)
    put_job_with(queue, "a", HELD, size=1, resources=GPUS, template={"services": SERVICES})
    queue.put_cluster("a", size=1)
    queue.put_batch_job("a", parallelism=1)
    queue.put(POD, pod)
    counts = queue.ledger.pods_of(key)
    assert counts is not None
    assert (counts.service, counts.has_large_service) == (state, True)
    queue.put_cluster("a", size=1, uid="recreated")
    counts = queue.ledger.pods_of(key)
    assert counts is not None
    assert counts.service is ServicePod.MISSING


@pytest.mark.parametrize(
    ("amounts", "counted", "is_large"),
    [
        ({"cpu": "4", "example.com/gpu": "2"}, COUNTED, False),
        ({"cpu": "5", "example.com/gpu": "2"}, COUNTED, True),
        ({"cpu": "1", "example.com/gpu": "3"}, COUNTED, True),
        ({"cpu": "1", "memory": "100Gi"}, COUNTED, False),
        ({"cpu": "1", "memory": "100Gi"}, {"memory": "1Ti"}, True),
    ],
)
def test_service_pod_is_large_if_it_requests_more_than_a_broker_of_what_counts(
    amounts: dict[str, str], counted: dict[str, str], is_large: bool
) -> None:
    queue = Queue(resources=counted)
    services = [{"name": "db", "image": "i", "resources": {"requests": amounts}}]
    put_job_with(queue, "a", HELD, size=1, resources=GPUS, template={"services": services})
    counts = queue.ledger.pods_of(NamespacedName("ns", "a"))
    assert counts == PodCounts(service=ServicePod.MISSING, has_large_service=is_large)


def test_job_is_reconciled_when_its_service_pod_has_changed() -> None:
    queue = Queue(resources=COUNTED)
    key = NamespacedName("ns", "a")
    put_job_with(queue, "a", HELD, size=1, resources=GPUS, template={"services": SERVICES})
    queue.put_cluster("a", size=1)
    for change in ("Pending", "Running", "Succeeded", "deleted"):
        queue.notified.clear()
        if change == "deleted":
            queue.remove(POD, "a-services")
        else:
            queue.put(POD, service_pod("cluster-a", change))
        assert queue.notified == [key], change
    queue.put(POD, service_pod("cluster-a"))
    queue.notified.clear()
    queue.put(POD, service_pod("cluster-a", cpu="3"))
    assert queue.notified == []


def next_namespace(queue: Queue, size: int) -> str:
    """Return the namespace whose job of this size is admitted next: one that comes last, or that of a later job."""
    put_job_with(queue, "next", size=size)
    put_job_with(queue, "other", namespace="victim", size=size)
    queue.decide()
    (admitted,) = (
        namespace
        for namespace, name in (("ns", "next"), ("victim", "other"))
        if queue.reason(name, namespace) == "Admitted"
    )
    return admitted


@pytest.mark.parametrize(("has_service", "admitted"), [(False, "victim"), (True, "ns")])
def test_namespace_of_a_job_without_its_service_pod_comes_last(
    has_service: bool, admitted: str
) -> None:
    queue = Queue(max_size=2)
    put_job_with(queue, "a", HELD, size=1, template={"services": [{"name": "db", "image": "i"}]})
    queue.put_cluster("a", size=1)
    queue.put_batch_job("a", parallelism=1)
    put_pod_of(queue, "a-0")
    if has_service:
        queue.put(POD, service_pod("cluster-a", "Pending"))
    queue.remove(FLUX_JOB, "a")
    assert next_namespace(queue, 2) == admitted


@pytest.mark.parametrize("size", [4, None])
def test_namespace_of_a_job_with_a_smaller_minicluster_comes_last(size: int | None) -> None:
    """Also if the job has the size of its FluxSetup."""
    queue = Queue(max_size=4, mini_cluster={"size": 4})
    put_job_with(queue, "a", HELD, size=size)
    queue.put_cluster("a", size=1)
    queue.put_batch_job("a", parallelism=1)
    put_pod_of(queue, "a-0")
    queue.remove(FLUX_JOB, "a")
    assert next_namespace(queue, 4) == "victim"


def put_job_with(
    queue: Queue, name: str, *conditions: Object, namespace: str = "ns", **spec: Any
) -> None:
    """Add or change a FluxJob with these conditions."""
    status = {"jobid": name, "observedGeneration": 1, "conditions": list(conditions)}
    queue.put(FLUX_JOB, {**flux_job(name, namespace, **spec), "status": status})


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO", "Backfill"])
def test_namespace_that_held_quota_without_pods_comes_last_for_an_hour(strategy: str) -> None:
    queue = Queue(max_size=2, queueingStrategy=strategy)
    gave_up = {
        **met("Evicted"),
        "reason": "StartTimeout",
        "lastTransitionTime": datetime.fromtimestamp(NOW, UTC).isoformat(),
    }
    put_job_with(queue, "evicted", gave_up, namespace="a")
    put_job_with(queue, "new-name", namespace="a")
    put_job_with(queue, "job", namespace="b")
    assert queue.ledger.decide(SETUP, NOW + 3599).admitted == 1
    assert queue.reason("job", "b") == "Admitted"
    queue.remove(FLUX_JOB, "evicted", "a")
    put_job_with(queue, "job", {**met("JobFinished")}, namespace="b")
    put_job_with(queue, "next", namespace="b")
    queue.ledger.decide(SETUP, NOW + 3599)
    assert queue.reason("next", "b") == "Admitted"
    put_job_with(queue, "next", {**met("JobFinished")}, namespace="b")
    put_job_with(queue, "third", namespace="b")
    queue.ledger.decide(SETUP, NOW + 3600)
    assert queue.reason("new-name", "a") == "Admitted"


HELD = {
    **met("QuotaReserved"),
    "reason": "Admitted",
    "lastTransitionTime": datetime.fromtimestamp(NOW - 100, UTC).isoformat(),
}


@pytest.mark.parametrize("end", ["deleted", "suspended", "failed", "kept by a finalizer"])
@pytest.mark.parametrize("has_pods", [True, False])
def test_namespace_of_a_job_that_gave_quota_back_without_pods_comes_last(
    end: str, has_pods: bool
) -> None:
    queue = Queue(max_size=2)
    put_job_with(queue, "a", HELD)
    queue.put_cluster("a", size=2)
    if has_pods:
        queue.put_batch_job("a", parallelism=2)
        put_pod_of(queue, "a-0")
        put_pod_of(queue, "a-1")
    if end == "deleted":
        queue.remove(FLUX_JOB, "a")
    elif end == "suspended":
        put_job_with(queue, "a", HELD, {**met("Evicted"), "reason": "Suspended"}, suspend=True)
        released = {**HELD, "status": "False", "reason": "Suspended"}
        put_job_with(queue, "a", released, suspend=True)
    elif end == "failed":
        put_job_with(queue, "a", met("JobFinished"))
    else:
        status = {"jobid": "a", "observedGeneration": 1, "conditions": [HELD]}
        job = {**flux_job("a"), "status": status}
        job["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
        queue.put(FLUX_JOB, job)
    put_job_with(queue, "next")
    put_job_with(queue, "other", namespace="victim")
    queue.now = NOW + 1199
    assert queue.ledger.decide(SETUP, queue.now).admitted >= 1
    expected = ("Admitted", "InsufficientQuota") if has_pods else ("InsufficientQuota", "Admitted")
    assert (queue.reason("next"), queue.reason("other", "victim")) == expected


@pytest.mark.parametrize(
    ("reason", "keeps_place"),
    [("Preempted", True), ("Suspended", False), ("StartTimeout", False)],
)
def test_job_that_gave_its_quota_back_itself_comes_behind_those_that_wait(
    reason: str, keeps_place: bool
) -> None:
    queue = Queue(max_size=2)
    evicted = {
        **met("Evicted"),
        "reason": reason,
        "lastTransitionTime": datetime.fromtimestamp(NOW, UTC).isoformat(),
    }
    put_job_with(queue, "a", evicted)
    put_job_with(queue, "b")
    assert queue.ledger.decide(SETUP, NOW + 3600).admitted == 1
    admitted = "a" if keeps_place else "b"
    assert queue.reason(admitted) == "Admitted"


def test_no_job_is_evicted_for_one_with_a_refused_minicluster() -> None:
    queue = Queue(max_size=2, preemption="LowerPriority")
    put_job_with(queue, "running", HELD, namespace="victim")
    refused = {**met("QuotaReserved"), "status": "False", "reason": "MiniClusterRefused"}
    put_job_with(queue, "refused", refused)
    queue.put_job("high", priority=10)
    queue.decide()
    assert queue.reason("running", "victim") == ""
    assert queue.reason("high") == "InsufficientQuota"


SUSPENDED = {"startTime": "2026-01-01T00:00:00Z", "conditions": [met("Suspended")]}
SCHEDULED = ({"type": "PodScheduled", "status": "True"},)


def stop_cluster(queue: Queue, name: str, **metadata: Any) -> None:
    """Let the controller observe that the MiniCluster is suspended."""
    cluster: Object = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"cluster-{name}", **metadata},
        "spec": {"size": 1, "suspend": True},
        "status": {"observedGeneration": 1},
    }
    queue.put(MINICLUSTER, cluster)


def evicted_job(size: int) -> Queue:
    """Return a queue with a quota of four pods and the FluxJob ``low``, evicted for ``high``, which needs all of it."""
    queue = Queue(max_size=4, preemption="LowerPriority")
    queue.put_job("low", "QuotaReserved", size=size, priority=0)
    queue.put_cluster("low", size=size)
    queue.put_batch_job("low", parallelism=size)
    queue.put_job("high", size=4, priority=10)
    queue.decide()
    assert queue.reason("low") == "Preempted"
    queue.put_job("low", "QuotaReserved", "Evicted", size=size, priority=0)
    queue.decide()
    assert queue.reason("high") == "QuotaIsBeingReleased"
    return queue


def test_pod_without_a_node_delays_no_release_and_counts_when_it_gets_one() -> None:
    queue = evicted_job(size=4)
    queue.put_pod("decoy", "low", "Pending", owned=False)
    stop_cluster(queue, "low")
    queue.notified.clear()
    queue.put_batch_job("low", parallelism=4, suspend=True, status=SUSPENDED)
    assert queue.ledger.is_drained(NamespacedName("ns", "low"))
    assert NamespacedName("ns", "low") in queue.notified
    queue.decide()
    assert queue.reason("high") == "Admitted"
    queue.put_pod("decoy", "low", "Pending", owned=False, conditions=SCHEDULED)
    assert queue.decide().pods == 5


def test_evicted_job_holds_what_its_pods_request_once_nothing_creates_more() -> None:
    queue = evicted_job(size=4)
    queue.put_pod("low-0", "low")
    queue.put_pod("decoy", "low", owned=False)
    assert queue.decide().pods == 4
    stop_cluster(queue, "low")
    assert queue.decide().pods == 4
    queue.put_batch_job("low", parallelism=4, suspend=True, status=SUSPENDED)
    assert queue.decide().pods == 2
    assert not queue.ledger.is_drained(NamespacedName("ns", "low"))
    queue.remove(POD, "low-0")
    assert queue.decide().pods == 1
    assert queue.reason("high") == "QuotaIsBeingReleased"
    queue.remove(POD, "decoy")
    queue.decide()
    assert queue.reason("high") == "Admitted"


def test_evicted_job_holds_only_its_pods_after_30_seconds() -> None:
    """Any user can resume its MiniCluster after each suspension."""
    queue = evicted_job(size=4)
    key = NamespacedName("ns", "low")
    evicted = {
        **met("Evicted"),
        "lastTransitionTime": datetime.fromtimestamp(NOW, UTC).isoformat(),
    }
    put_job_with(queue, "low", HELD, evicted, size=4)
    queue.put_pod("low-0", "low")
    for seconds, pods in ((29, 4), (30, 1)):
        queue.now = NOW + seconds
        queue.ledger.count_again(key)
        assert queue.decide().pods == pods
        assert queue.ledger.creates_pods(key)
        assert not queue.ledger.is_drained(key)
    assert queue.decide_again == [SETUP]
    queue.notified.clear()
    queue.remove(POD, "low-0")
    assert queue.ledger.is_drained(key)
    assert key in queue.notified


@pytest.mark.parametrize(
    "kept", ["Job", "MiniCluster", "Job of another MiniCluster", "Job of another name"]
)
def test_objects_that_a_tenant_keeps_hold_nothing_of_an_evicted_job(kept: str) -> None:
    """A finalizer keeps an object, and its Job, for any time; any user can create a Job with an owner."""
    queue = evicted_job(size=4)
    deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    if kept == "MiniCluster":
        stop_cluster(queue, "low", generation=2, **deleting)
        queue.put_batch_job("low", parallelism=4)
        assert not queue.ledger.is_drained(NamespacedName("ns", "low"))
        queue.remove(JOB, "low")
    elif kept == "Job":
        stop_cluster(queue, "low")
        queue.put_batch_job("low", parallelism=4, metadata=deleting)
    elif kept == "Job of another MiniCluster":
        stop_cluster(queue, "low", uid="recreated")
    else:
        queue.remove(MINICLUSTER, "low")
        queue.put_batch_job("low", parallelism=4, owner={"name": "other"})
    assert queue.ledger.is_drained(NamespacedName("ns", "low"))
    queue.decide()
    assert queue.reason("high") == "Admitted"


def preemptible_queue() -> Queue:
    """Return a queue with a quota of four pods, of which ``low`` holds two, and two pods do not end."""
    queue = Queue(max_size=4, preemption="LowerPriority")
    queue.put_job("low", "QuotaReserved", size=2, priority=0)
    for number in range(2):
        queue.put_pod(f"old-{number}", "old")
    queue.put_job("high", size=2, priority=10)
    return queue


def decide_after(queue: Queue, seconds: float) -> str:
    """Decide ``seconds`` after NOW; return why the job ``high`` waits, or that it was admitted."""
    queue.now = NOW + seconds
    queue.ledger.decide(SETUP, queue.now)
    return queue.reason("high")


def test_pods_that_do_not_end_in_time_delay_no_preemption() -> None:
    queue = preemptible_queue()
    assert decide_after(queue, 0) == "QuotaIsBeingReleased"
    assert queue.ledger.next_decision(SETUP) == NOW + 300
    assert decide_after(queue, 299) == "QuotaIsBeingReleased"
    assert queue.reason("low") == ""
    assert decide_after(queue, 300) == "QuotaIsBeingReleased"
    assert queue.reason("low") == "Preempted"
    assert queue.ledger.next_decision(SETUP) == NOW + 600
    queue.remove(FLUX_JOB, "low")
    assert decide_after(queue, 301) == "Admitted"
    assert queue.ledger.next_decision(SETUP) is None


def test_pods_that_replace_each_other_delay_no_preemption() -> None:
    """Each of them is young, and counts as being released."""
    queue = preemptible_queue()
    assert decide_after(queue, 0) == "QuotaIsBeingReleased"
    for turn in range(1, 3):
        queue.now = NOW + 140 * turn
        for number in range(2):
            queue.put_pod(f"pod-{turn}-{number}", f"group-{turn}")
            previous = f"old-{number}" if turn == 1 else f"pod-{turn - 1}-{number}"
            queue.remove(POD, previous)
        assert decide_after(queue, 140 * turn) == "QuotaIsBeingReleased"
        assert queue.reason("low") == ""
    assert decide_after(queue, 300) == "QuotaIsBeingReleased"
    assert queue.reason("low") == "Preempted"
    queue.put_job("lowest", "QuotaReserved", size=2, priority=0)
    assert decide_after(queue, 301) == "QuotaIsBeingReleased"
    assert queue.reason("lowest") == ""  # no other job is evicted while that ends


def test_evicted_job_that_does_not_end_in_time_is_not_evicted_again() -> None:
    queue = evicted_job(size=2)
    queue.put_job("other", "QuotaReserved", size=2, priority=0)
    queue.put_job("high", size=2, priority=10)
    assert decide_after(queue, 0) == "QuotaIsBeingReleased"
    assert decide_after(queue, 300) == "QuotaIsBeingReleased"
    assert (queue.reason("low"), queue.reason("other")) == ("", "Preempted")


def test_nothing_is_drained_or_decided_before_the_informers_have_synced() -> None:
    ledger = Ledger(frozenset(), lambda _: None, lambda _: None, lambda _: None)
    assert not ledger.is_drained(NamespacedName("ns", "a"))
    assert ledger.decide(SETUP, NOW) == Totals()


def test_status_is_rewritten_only_when_reason_or_magnitude_of_the_position_changes() -> None:
    queue = Queue(max_size=1)
    for number in range(8):
        queue.put_job(f"job-{number}")
    queue.decide()
    positions = {name: queue.verdict(name) for name in ("job-0", "job-7")}
    assert [verdict.position if verdict else 0 for verdict in positions.values()] == [
        0,
        0,
    ]  # TooLarge: no position
    queue.put(FLUX_SETUP, flux_setup(namespace="operator", namespaceSelector={}, max_size=2))
    queue.decide()
    last = queue.verdict("job-7")
    assert last is not None
    assert (last.reason, last.position, last.setup) == ("InsufficientQuota", 7, "operator/setup")
    assert [position_changed(8, now) for now in (8, 5, 4, 15, 16, 0)] == [
        False,
        False,
        True,
        False,
        True,
        True,
    ]


def test_priority_class_that_appears_changes_or_is_deleted_changes_the_order() -> None:
    queue = Queue(max_size=2)
    queue.put_job("a", priorityClassName="low")
    queue.put_job("b", priorityClassName="high")
    queue.put(PRIORITY_CLASS, {"metadata": {"name": "high"}, "value": 1000})
    queue.decide()
    assert queue.reason("b") == "Admitted"
    queue.ledger.withdraw(NamespacedName("ns", "b"))
    queue.put(PRIORITY_CLASS, {"metadata": {"name": "low"}, "value": 2000})
    queue.decide()
    assert queue.reason("a") == "Admitted"
    queue.ledger.withdraw(NamespacedName("ns", "a"))
    queue.remove(PRIORITY_CLASS, "low", namespace="")
    queue.decide()
    assert queue.reason("b") == "Admitted"


def test_namespace_that_is_relabelled_or_deleted_leaves_the_queue() -> None:
    queue = Queue(max_size=2)
    queue.put(
        FLUX_SETUP,
        flux_setup(
            namespace="operator", namespaceSelector={"matchLabels": {"team": "a"}}, maxSize=2
        ),
    )
    queue.put_job("a")
    assert queue.decide().admitted == 0
    queue.put(NAMESPACE, {"metadata": {"name": "ns", "labels": {"team": "a"}}})
    assert queue.decide().admitted == 1
    queue.ledger.withdraw(NamespacedName("ns", "a"))
    queue.put(NAMESPACE, {"metadata": {"name": "ns", "labels": {"team": "b"}}})
    assert queue.decide().admitted == 0
    queue.put(NAMESPACE, {"metadata": {"name": "ns", "labels": {"team": "a"}}})
    queue.remove(NAMESPACE, "ns", namespace="")
    assert queue.decide().admitted == 0


def test_default_size_of_the_setup_counts() -> None:
    queue = Queue(max_size=4, mini_cluster={"size": 3})
    queue.put_job("a", size=None)
    queue.put_job("b", size=None, template={"services": [{"name": "s", "image": "i"}]})
    assert queue.decide().pods == 3
    verdict = queue.verdict("b")
    assert verdict is not None
    assert verdict.message == "Waiting for 4 pods of the quota of FluxSetup operator/setup"


NAMES = st.sampled_from(["a", "b", "c"])
CONDITIONS = st.sets(st.sampled_from(["QuotaReserved", "Evicted", "JobFinished"]), max_size=2)
CHANGES = st.one_of(
    st.tuples(st.just("job"), NAMES, CONDITIONS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("cluster"), NAMES, CONDITIONS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("batch"), NAMES, CONDITIONS, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("pod"), NAMES, CONDITIONS, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("delete"), NAMES, CONDITIONS, st.integers(0, 9), st.booleans()),
)


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(st.lists(CHANGES, max_size=25), st.randoms())
def test_ledger_after_any_events_equals_one_that_is_rebuilt(
    changes: list[Any], random: Any
) -> None:
    """Nothing in memory must matter after a restart."""
    queue = Queue(max_size=6)
    for kind, name, true, number, flag in changes:
        if kind == "job":
            queue.put_job(name, *sorted(true), size=number, suspend=flag)
        elif kind == "cluster":
            conditions = [met(item) for item in sorted(true)]
            queue.put_cluster(name, size=number, owned=flag, conditions=conditions)
        elif kind == "batch":
            queue.put_batch_job(name, parallelism=number, suspend=flag)
        elif kind == "pod":
            queue.put_pod(f"pod-{number}", name, "Succeeded" if flag else "Running")
        else:
            existing = [key for key in queue.entries if key[0] != FLUX_SETUP]
            if existing:
                gvk, key = existing[number % len(existing)]
                queue.remove(gvk, key.name)
    rebuilt = Ledger(frozenset({"operator"}), lambda _: None, lambda _: None, lambda _: None)
    entries = list(queue.entries.items())
    random.shuffle(entries)
    for (gvk, key), entry in entries:
        handlers(rebuilt)[gvk](Event(EventType.ADDED, key, None, entry))
    rebuilt.start()
    assert rebuilt.decide(SETUP, NOW) == queue.decide()
    for name in ("a", "b", "c"):
        key = NamespacedName("ns", name)
        assert rebuilt.is_drained(key) == queue.ledger.is_drained(key)
        assert rebuilt.verdict(key, f"uid-{name}", 1) == queue.verdict(name)


async def test_start_lets_others_run_between_the_demands_of_jobs() -> None:
    jobs = 300
    ledger = Ledger(frozenset({"operator"}), lambda _: None, lambda _: None, lambda _: None)
    queue = Queue(max_size=1)
    queue.ledger = ledger
    queue.put(FLUX_SETUP, flux_setup(namespace="operator", namespaceSelector={}, **{"max-size": 1}))
    for number in range(jobs):
        queue.put_job(f"job-{number}", size=10_000 + number)
    registry = Metrics().registry
    reconciler = FluxSetupReconciler(
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        SystemClock(),
        ledger,
        Channel(),
        decision_seconds(registry),
    )
    turns = computed = 0

    async def count_turns() -> None:
        nonlocal turns, computed
        while not ledger.is_started:
            turns += 1
            computed = _remembered.cache_info().misses
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        await anyio.lowlevel.checkpoint()
        await reconciler.reconcile(START)
    assert turns >= jobs
    assert _remembered.cache_info().misses - computed <= 1, (
        "the rest of the start computes no demand"
    )
    assert ledger.decide(SETUP, NOW).pending == jobs


def test_waiting_job_takes_less_than_one_kilobyte() -> None:
    count = 2000
    decoder = EntryDecoder(FLUX_JOB)
    queue = Queue(max_size=1)
    entries = []
    for number in range(count):
        job = flux_job(f"job-{number:05}", size=1 + number % 7)
        job["metadata"] |= {
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "generation": 1,
            "resourceVersion": "1",
        }
        job["status"] = {"jobid": f"job-{number}", "observedGeneration": 1}
        entries.append(decoder.decode(orjson.dumps(job)))
        entries[-1].drop_meta()
    gc.collect()
    tracemalloc.start()
    for entry in entries:
        queue.ledger.on_job(Event(EventType.ADDED, entry.key, None, entry))
    queue.decide()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    queue.notified.clear()
    assert used / count < 1024
    assert key_of(job) == entries[-1].key
