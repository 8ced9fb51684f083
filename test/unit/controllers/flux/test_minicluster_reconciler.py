"""Tests of the order and the number of requests in a MiniCluster's reconcile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.reconciler import (
    Informers,
    MiniClusterReconciler,
    _seconds_until_check,
)
from cfo.controllers.flux.minicluster.resources import desired_job
from cfo.controllers.pod_status import PodFailure
from cfo.runtime import (
    GVK,
    Client,
    Entry,
    EventRecorder,
    Forbidden,
    NamespacedName,
    NotFound,
    Object,
    Result,
    SystemClock,
    owner_reference,
)
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.client.name_checks import NameChecks
from cfo.runtime.client.object_cache import ClientCache
from test.support.flux_environment import mini_cluster

KEY = NamespacedName("ns", "flux-sample")


class RecordingClient:
    """Answers requests for one MiniCluster and its pods, and records the writes."""

    def __init__(
        self, cluster: Object, *, is_deleted: bool = False, strips_labels: bool = False
    ) -> None:
        self.cluster = cluster
        self.is_deleted = is_deleted
        self.strips_labels = strips_labels
        self.writes: list[str] = []
        self.name_checks = NameChecks()
        self.cache = ClientCache()

    async def get(self, gvk: GVK, key: NamespacedName, **options: Any) -> Object:
        return self.cluster

    async def apply(self, obj: Object, *, subresource: str = "", force: bool = True) -> Object:
        self.writes.append(subresource)
        if self.is_deleted:
            raise NotFound(404)
        return obj

    async def patch_metadata(
        self, gvk: GVK, key: NamespacedName, metadata: Object, *, uid: str
    ) -> Object:
        self.writes.append(key.name)
        return {"metadata": {} if self.strips_labels else metadata}

    async def delete(
        self, gvk: GVK, key: NamespacedName, *, uid: str, propagation_policy: str = ""
    ) -> bool:
        self.writes.append(f"delete {gvk.kind} {uid} {propagation_policy}".rstrip())
        return True


def entry(kind: str, obj: Object) -> Entry:
    """Return an object as in the cache of an informer."""
    metadata = {"namespace": "ns", "resourceVersion": "1", **obj["metadata"]}
    return EntryDecoder(GVK("", "v1", kind)).decode(orjson.dumps({**obj, "metadata": metadata}))


def job_of(cluster: Object, **metadata: Any) -> Object:
    """Return the Job of a MiniCluster."""
    job = desired_job(Plan.of(cluster))
    controller = owner_reference(cluster, controller=True)
    job["metadata"] |= {"uid": "j", "ownerReferences": [controller], **metadata}
    return job


async def reconcile(
    client: RecordingClient, pods: int, job: Object | None = None, service_pod: Entry | None = None
) -> Result:
    """Reconcile a MiniCluster with a Job and this number of pods without an index label."""
    job = job or job_of(client.cluster)
    owner = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "flux-sample",
            "uid": "j",
            "controller": True,
        }
    ]
    entries = [
        entry(
            "Pod",
            {
                "metadata": {
                    "name": f"pod-{index}",
                    "uid": f"p{index}",
                    "ownerReferences": owner,
                    "labels": {
                        MINICLUSTER_LABEL: "flux-sample",
                        "batch.kubernetes.io/job-completion-index": str(index),
                    },
                }
            },
        )
        for index in reversed(range(pods))
    ]
    informers = SimpleNamespace(
        jobs=SimpleNamespace(entry=lambda key: entry("Job", job)),
        pods=SimpleNamespace(entries=lambda index: entries, entry=lambda key: service_pod),
    )
    events = SimpleNamespace(event=lambda *args: None)
    reconciler = MiniClusterReconciler(
        cast("Client", client),
        cast("EventRecorder", events),
        SystemClock(),
        cast("Informers", informers),
    )
    return await reconciler.reconcile(KEY)


def invalid_cluster() -> Object:
    """Return a MiniCluster whose objects stay as they are, except for their labels."""
    cluster = mini_cluster(size=50, tasks=-1)
    cluster["metadata"] |= {"uid": "u", "generation": 1}
    return cluster


async def test_status_is_written_before_a_limited_number_of_pods_is_labelled() -> None:
    client = RecordingClient(invalid_cluster())
    result = await reconcile(client, 50)
    assert client.writes[:2] == ["status", "pod-0"]
    assert len(client.writes) == 21
    assert 0 < result.requeue_after < 1
    small = RecordingClient(invalid_cluster())
    assert await reconcile(small, 20) == Result()
    assert len(small.writes) == 21


async def test_refusal_of_pods_is_asked_for_once_and_is_in_the_condition() -> None:
    refusal = 'pods "a-x" is forbidden: exceeded quota: none, requested: pods=1'
    asked: list[bool] = []
    is_refused = True

    async def create(pod: Object, *, dry_run: bool) -> Object:
        assert pod["spec"]["containers"]
        asked.append(dry_run)
        if is_refused:
            raise Forbidden(403, {"message": refusal})
        return pod

    async def get(gvk: GVK, key: NamespacedName, *, live: bool) -> Object:
        assert live
        return stored

    reconciler = MiniClusterReconciler(
        cast("Client", SimpleNamespace(create=create, get=get)),
        cast("EventRecorder", None),
        SystemClock(),
        cast("Informers", None),
    )
    cluster = mini_cluster(size=2)
    stored = desired_job(Plan.of(cluster))
    stored["metadata"]["uid"] = "j"
    job = {**stored, "spec": {**stored["spec"], "template": {"spec": {"subdomain": "s"}}}}
    job["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    failure = await reconciler._missing_pods(cluster, job, [])
    assert failure == PodFailure("PodsMissing", f"2 of 2 pods cannot be created: {refusal}")
    known = {"type": "PodsReady", "status": "False", "message": failure.message}
    cluster["status"] = {"conditions": [known]}
    assert await reconciler._missing_pods(cluster, job, []) == failure
    assert asked == [True]
    job["status"]["active"] = 1
    fewer = await reconciler._missing_pods(cluster, job, [])
    assert fewer is not None
    assert fewer.message.startswith("1 of 2 pods")
    assert asked == [True, True]
    job["status"]["failed"] = 1
    assert await reconciler._missing_pods(cluster, job, []) == fewer, "also instead of a failed one"
    asked.clear()
    is_refused = False
    for _ in range(3):
        assert await reconciler._missing_pods(cluster, job, []) is None, "the Job replaces it soon"
    assert asked == [True]
    assert _seconds_until_check(job, SystemClock().now()) == 60, "then a quota may be full"
    job["status"]["failed"] = 2
    assert await reconciler._missing_pods(cluster, job, []) is None
    assert asked == [True, True]
    del job["status"]["active"]  # that of a Job that waits to replace a failed pod
    controller = owner_reference(stored, controller=True)
    pods = [
        entry("Pod", {"metadata": {"name": name, "uid": name, "ownerReferences": [controller]}})
        for name in ("a", "b")
    ]
    assert await reconciler._missing_pods(cluster, job, pods) is None
    assert asked == [True, True]


async def test_labels_that_are_removed_by_others_are_not_written_in_a_loop() -> None:
    client = RecordingClient(invalid_cluster(), strips_labels=True)
    assert await reconcile(client, 50) == Result()


async def test_status_of_a_deleted_cluster_is_no_error() -> None:
    client = RecordingClient(invalid_cluster(), is_deleted=True)
    assert await reconcile(client, 2) == Result()
    assert client.writes == ["status"]


DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
KEPT = {**DELETING, "finalizers": ["test.example.com/keep"]}


def deleted_cluster(**metadata: Any) -> Object:
    """Return a MiniCluster that is being deleted, and that a finalizer keeps."""
    cluster = mini_cluster(size=50)
    cluster["metadata"] |= {"uid": "u", "generation": 1, **KEPT, **metadata}
    return cluster


def service_pod_of(cluster: Object, **metadata: Any) -> Entry:
    """Return the service pod of a MiniCluster."""
    owner = owner_reference(cluster, controller=True)
    name = "flux-sample-services"
    return entry(
        "Pod", {"metadata": {"name": name, "uid": "s", "ownerReferences": [owner], **metadata}}
    )


async def test_job_and_service_pod_of_a_kept_cluster_are_deleted() -> None:
    cluster = deleted_cluster()
    client = RecordingClient(cluster)
    assert await reconcile(client, 3, service_pod=service_pod_of(cluster)) == Result()
    assert client.writes == ["delete Pod s", "delete Job j Foreground"]
    for finalizer in ("foregroundDeletion", "orphan"):
        client = RecordingClient(deleted_cluster(finalizers=["a/b", finalizer]))
        assert await reconcile(client, 3) == Result()
        assert client.writes == []
    collected = {**KEPT, "finalizers": ["a/b", "foregroundDeletion"]}
    ended = job_of(cluster)
    ended["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    other = job_of(cluster)
    other["metadata"]["ownerReferences"][0]["uid"] = "other"
    for job in (job_of(cluster, **collected), ended, other):
        client = RecordingClient(cluster)
        pod = service_pod_of(cluster, **DELETING)
        assert await reconcile(client, 3, job, pod) == Result()
        assert client.writes == []


@pytest.mark.parametrize("cluster", [deleted_cluster(), invalid_cluster()], ids=["deleted", "live"])
async def test_pods_of_a_kept_job_are_deleted_in_batches(cluster: Object) -> None:
    job = job_of(cluster, **KEPT)
    client = RecordingClient(cluster)
    result = await reconcile(client, 50, job)
    deleted = [write for write in client.writes if write.startswith("delete")]
    assert len(deleted) == 20
    assert set(deleted) <= {f"delete Pod p{index}" for index in range(50)}
    assert 0 < result.requeue_after < 1
    few = RecordingClient(cluster)
    assert await reconcile(few, 20, job) == Result()
    assert len([write for write in few.writes if write.startswith("delete")]) == 20
