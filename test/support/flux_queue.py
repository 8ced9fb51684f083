"""The queue of Flux without an API server: a ledger, and objects that change in it as informers report them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, MINICLUSTER_LABEL
from cfo.controllers.flux.queue.ledger import Ledger, Totals
from cfo.controllers.flux.queue.model import Verdict
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects.kinds import JOB, NAMESPACE, POD, PRIORITY_CLASS
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object
from test.support.flux_environment import flux_job, flux_setup

SETUP = NamespacedName("operator", "setup")
NOW = 1_800_000_000.0


def handlers(ledger: Ledger) -> dict[GVK, Callable[[Event], object]]:
    """Return the methods that process the events of each kind."""
    return {
        FLUX_JOB: ledger.on_job,
        FLUX_SETUP: ledger.on_setup,
        MINICLUSTER: ledger.on_cluster,
        JOB: ledger.on_batch_job,
        POD: ledger.on_pod,
        NAMESPACE: ledger.on_namespace,
        PRIORITY_CLASS: ledger.on_priority_class,
    }


class Queue:
    """A ledger with one FluxSetup for all namespaces, and objects that change in it as informers report them."""

    def __init__(self, **spec: Any) -> None:
        self.now = NOW
        self.notified: list[NamespacedName] = []
        self.lost: list[NamespacedName] = []
        self.decide_again: list[NamespacedName] = []
        self.ledger = Ledger(
            frozenset({"operator"}),
            self.notified.extend,
            self.lost.extend,
            self.decide_again.extend,
            now=lambda: self.now,
        )
        self.entries: dict[tuple[GVK, NamespacedName], Entry] = {}
        self.version = 0
        self.put(FLUX_SETUP, flux_setup(namespace="operator", namespaceSelector={}, **spec))
        self.ledger.start()

    def put(self, gvk: GVK, obj: Object) -> None:
        """Add or change an object."""
        self.version += 1
        metadata = {
            "uid": f"uid-{obj['metadata']['name']}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        obj = copy.deepcopy({"apiVersion": gvk.api_version, "kind": gvk.kind, **obj})
        obj["metadata"] = {**metadata, **obj["metadata"], "resourceVersion": str(self.version)}
        entry = EntryDecoder(gvk).decode(orjson.dumps(obj))
        old = self.entries.get((gvk, entry.key))
        if old is not None and old.meta.uid != entry.meta.uid:
            self.remove(gvk, entry.name, entry.namespace)
            old = None
        self.entries[gvk, entry.key] = entry
        self._deliver(
            gvk, Event(EventType.UPDATED if old else EventType.ADDED, entry.key, old, entry)
        )

    def remove(self, gvk: GVK, name: str, namespace: str = "ns") -> None:
        """Delete an object; pods are listed at once if a pod is lost."""
        old = self.entries.pop((gvk, NamespacedName(namespace, name)))
        self._deliver(gvk, Event(EventType.DELETED, old.key, old, None))
        if self.ledger.has_lost_pods(namespace):
            lost = self.ledger.lost_pods(namespace)
            others = [PodMeta(known, uid) for known, uid in lost.items() if known != name]
            self.settle(others)

    def lose(self, name: str) -> None:
        """Remove the label of a pod, which the informer reports as its deletion."""
        old = self.entries.pop((POD, NamespacedName("ns", name)))
        self._deliver(POD, Event(EventType.DELETED, old.key, old, None))

    def settle(self, active: Sequence[PodMeta] = ()) -> None:
        """Let the pods that have not ended be listed."""
        self.ledger.settle_lost("ns", self.ledger.lost_pods("ns"), active)

    def _deliver(self, gvk: GVK, event: Event) -> None:
        handlers(self.ledger)[gvk](event)

    def put_job(self, name: str, *true: str, labels: Object | None = None, **spec: Any) -> None:
        """Add or change a FluxJob that was validated; the conditions ``true`` are true."""
        status = {
            "jobid": name,
            "observedGeneration": 1,
            "conditions": [met(kind) for kind in true],
        }
        job = {**flux_job(name, **spec), "status": status}
        job["metadata"]["labels"] = labels or {}
        self.put(FLUX_JOB, job)

    def put_cluster(
        self,
        name: str,
        *,
        size: int,
        owned: bool = True,
        conditions: list[Object] | None = None,
        uid: str = "",
        **spec: Any,
    ) -> None:
        """Add or change a MiniCluster, by default that of the FluxJob with its name."""
        owner = {
            "apiVersion": FLUX_JOB.api_version,
            "kind": "FluxJob",
            "name": name,
            "uid": f"uid-{name}",
        }
        metadata: Object = {"name": name, "namespace": "ns", "uid": uid or f"cluster-{name}"}
        if owned:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        status = {"conditions": conditions or []}
        self.put(
            MINICLUSTER, {"metadata": metadata, "spec": {"size": size, **spec}, "status": status}
        )

    def put_batch_job(
        self,
        name: str,
        status: Object | None = None,
        *,
        metadata: Object | None = None,
        owner: Object | None = None,
        **spec: Any,
    ) -> None:
        """Add or change the Job of a MiniCluster; ``owner`` are other values in the owner reference."""
        controller = {
            "apiVersion": MINICLUSTER.api_version,
            "kind": "MiniCluster",
            "name": name,
            "uid": f"cluster-{name}",
            "controller": True,
            **(owner or {}),
        }
        given: Object = {
            "name": name,
            "namespace": "ns",
            "ownerReferences": [controller],
            **(metadata or {}),
        }
        self.put(JOB, {"metadata": given, "spec": spec, "status": status or {}})

    def put_pod(
        self,
        name: str,
        cluster: str,
        phase: str = "Running",
        *,
        owned: bool = True,
        spec: Object | None = None,
        conditions: Sequence[Object] = (),
        uid: str = "",
    ) -> None:
        """Add or change a pod of a MiniCluster; by default, those of two MiniClusters have different uids."""
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": cluster,
            "uid": f"uid-{cluster}",
            "controller": True,
        }
        metadata: Object = {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"{name}-of-{cluster}",
            "labels": {MINICLUSTER_LABEL: cluster},
        }
        if owned:
            metadata["ownerReferences"] = [owner]
        status = {"phase": phase, "conditions": [*conditions]}
        self.put(POD, {"metadata": metadata, "spec": spec or {}, "status": status})

    def decide(self) -> Totals:
        """Decide about the queue."""
        return self.ledger.decide(SETUP, NOW)

    def verdict(self, name: str, namespace: str = "ns") -> Verdict | None:
        """Return the verdict about a job."""
        return self.ledger.verdict(NamespacedName(namespace, name), f"uid-{name}", 1)

    def reason(self, name: str, namespace: str = "ns") -> str:
        """Return the reason in the verdict about a job, or the empty string."""
        verdict = self.verdict(name, namespace)
        return verdict.reason if verdict is not None else ""


def met(kind: str) -> Object:
    """Return a condition that is true."""
    return {
        "type": kind,
        "status": "True",
        "reason": "Admitted" if kind == "QuotaReserved" else kind,
    }
