"""The state of the queue in memory: records of all objects that matter to it, updated by each event of an informer.

Nothing here is kept anywhere else, and all of it is read again from the informers after a restart, with two additions:

* What was decided and is not visible in the informers yet (*assumed* admissions and evictions) counts until the
  informer shows it, or shows that the job has changed so that it cannot happen any more.
* A pod counts for its MiniCluster until it has ended or was deleted, also if users change its label, and an object
  whose new state cannot be decoded counts as before. A pod that leaves the cache while it occupies a node is *lost*
  until a list shows whether it was deleted or has only lost its label.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
import structlog
from anyio.lowlevel import checkpoint

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.flux.queue.admissions import Admissions
from cfo.controllers.flux.queue.decision import decide
from cfo.controllers.flux.queue.governance import Governance, Setup, setup_of
from cfo.controllers.flux.queue.group import (
    RELEASE_SECONDS,
    Group,
    holding_of,
    message_of,
    obstacle_of,
)
from cfo.controllers.flux.queue.model import (
    ADMITTED,
    EVICTED_BY_QUEUE,
    WAITING_FOR_KUEUE,
    Blocked,
    Demand,
    PodCounts,
    ServicePod,
    Verdict,
    WaitingJob,
    position_changed,
)
from cfo.controllers.flux.queue.records import (
    JobRecord,
    PodRecord,
    batch_record,
    cluster_record,
    job_record,
    owner_of_pod,
    pod_record,
)
from cfo.controllers.pod_lists import PodMeta
from cfo.runtime import Event, NamespacedName, Request

_log = structlog.get_logger("cfo.controllers.flux.queue")

_S = TypeVar("_S")
_T = TypeVar("_T")

_NO_GROUPS: Final[Mapping[str, Group]] = MappingProxyType({})
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

_MAX_SETUPS: Final = 100
"""How many FluxSetups of a namespace can govern: the newest ones, without those that are invalid.

The namespaces of administrators have no limit.
"""

_LAST_SECONDS: Final = 3600.0
"""For how long the jobs of a namespace come after all others at most, because one held quota without its pods."""

_LAST_SHARE: Final = 12
"""How many times as long as it held quota. So a namespace cannot hold more than a small share of the time."""

_UNKNOWN_POD: Final = Demand(pods=1)
"""What a pod holds that could never be decoded."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers of a setup: pods that hold quota, jobs that hold quota, and jobs that wait.

    ``without_job``: how many of these pods are of MiniClusters that no FluxJob created.
    """

    pods: int = 0
    admitted: int = 0
    pending: int = 0
    without_job: int = 0


@dataclass(slots=True)
class Ledger:
    """Records of FluxSetups, FluxJobs, MiniClusters, Jobs and pods, and the verdicts about FluxJobs.

    ``admin_namespaces``: whose FluxSetups may select other namespaces. ``notify`` is called with FluxJobs that have
    something to do, and ``verify`` with the namespace of a lost pod, as the request for a Namespace: its active pods
    must be listed for :meth:`settle_lost`. ``decide_again`` is called with setups whose queues have changed without an
    event. The methods ``on_*`` process an event, and return the setups whose queues it may have changed. Before
    :meth:`start`, records are only collected.
    """

    admin_namespaces: Collection[str]
    notify: Callable[[Iterable[Request]], None]
    verify: Callable[[Iterable[Request]], None]
    decide_again: Callable[[Iterable[Request]], None]
    _groups: dict[str, dict[str, Group]] = field(default_factory=dict)
    _admissions: Admissions = field(default_factory=Admissions)
    _setups: dict[NamespacedName, Setup] = field(default_factory=dict)
    _by_age: dict[str, list[Setup]] = field(default_factory=dict)
    """The setups of each namespace that are valid, the oldest first."""
    _selecting: list[Setup] = field(default_factory=list)
    """The valid setups with a selector, the oldest first."""
    _clusters_of_pods: dict[str, dict[str, str]] = field(default_factory=dict)
    """The MiniCluster for which each pod counts, by namespace and name of the pod."""
    _lost: dict[str, dict[str, str]] = field(default_factory=dict)
    """The uids of the lost pods, by namespace and name. Nodes limit their number."""
    _labels: dict[str, dict[str, str]] = field(default_factory=dict)
    _classes: dict[str, int] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    """Until when the jobs of a namespace come after those of all others, in seconds since the epoch."""
    _refused: dict[str, float] = field(default_factory=dict)
    """Until when no job is evicted for those of a namespace, because one of its MiniClusters was refused."""
    _next_decisions: dict[NamespacedName, float] = field(default_factory=dict)
    """When setups for whose jobs quota is being released may evict others, in seconds since the epoch."""
    _governance: Governance = field(default_factory=Governance)
    is_started: bool = False
    """Whether :meth:`start` was called."""
    now: Callable[[], float] = time.time
    """Returns the time, in seconds since the epoch."""

    # For the reconcilers.

    async def prepare(self) -> None:
        """Compute what each job demands, and count its pods, before :meth:`start`, which computes nothing twice.

        Others run in between.
        """
        governance = Governance()
        self._govern(governance, self._namespaces())
        for namespace, groups in list(self._groups.items()):
            for group in list(groups.values()):
                if group.job is not None and not group.job.is_finished:
                    setup = governance.governor(namespace)
                    group.demand_of_job(setup)
                    group.count_pods(setup)
                    await checkpoint()

    def start(self) -> list[Request]:
        """Begin to decide, because all informers have synced; return all setups."""
        self.is_started = True
        self._govern(self._governance, self._namespaces())
        for namespace in list(self._groups):
            self._refresh_namespace(namespace)
        return list(self._setups)

    def verdict(self, key: NamespacedName, uid: str, generation: int) -> Verdict | None:
        """Return what there is to do about this generation of a FluxJob; ``None`` if nothing has changed."""
        group = self._group(key)
        if group is None or group.job is None:
            return None
        if group.job.uid != uid or group.job.generation != generation:
            return None
        reason = group.reason
        if not reason:
            return None
        may_admit = group.is_assumed and self._admissions.may_write(key)
        if reason == ADMITTED and not may_admit:
            return None
        if reason == EVICTED_BY_QUEUE and not group.is_evicting:
            return None
        setup = self._governance.governor(key.namespace)
        return Verdict(
            reason=reason,
            message=message_of(key, group, setup, priority=self._priority(group.job)),
            position=group.position,
            setup=str(setup.key) if setup is not None else "",
            kueue_queue=setup.kueue_queue if setup is not None else "",
        )

    def postpone(self, key: NamespacedName) -> None:
        """Let other admissions overtake that of ``key``, because its status could not be written; it is retried."""
        self.notify(self._admissions.remove(key))

    def withdraw(self, key: NamespacedName) -> None:
        """Forget the admission of ``key``, because its status must not say so."""
        group = self._group(key)
        if group is not None and group.is_assumed:
            group.is_assumed = False
            self._refresh(key)

    def uid_of(self, key: NamespacedName) -> str:
        """Return the uid of the FluxJob as the queue knows it; empty if it knows none."""
        group = self._group(key)
        if group is None or group.job is None:
            return ""
        return group.job.uid

    def forget(self, key: NamespacedName, uid: str) -> None:
        """Forget the FluxJob with this uid, because it does not exist any more, although no event has said so.

        The cache can miss the deletion of an object that it left out.
        """
        group = self._group(key)
        if group is None or group.job is None or group.job.uid != uid:
            return
        group.job = None
        group.is_assumed = False
        group.is_evicting = False
        group.reason = ""
        self.decide_again(self._update(key))

    def pods_of(self, key: NamespacedName) -> PodCounts | None:
        """Return how many pods of its own a FluxJob has; ``None`` before :meth:`start`."""
        if not self.is_started:
            return None
        group = self._group(key)
        if group is None:
            return PodCounts()
        return group.pod_counts

    def is_drained(self, key: NamespacedName) -> bool:
        """Return whether no pod of a FluxJob occupies a node, and nothing creates further ones, or should.

        A pod without a node does not count, because any user can create one that no node can run.
        """
        group = self._group(key)
        if not self.is_started:
            return False
        if group is None:
            return True
        if group.held_by_pods.pods:
            return False
        return not group.creates_pods or group.must_have_stopped(self.now())

    def creates_pods(self, key: NamespacedName) -> bool:
        """Return whether the MiniCluster of a FluxJob, or its Job, may create pods."""
        group = self._group(key)
        return group is not None and group.creates_pods

    def count_again(self, key: NamespacedName) -> None:
        """Count only the pods of an evicted FluxJob, if what creates them should have stopped since the last count."""
        group = self._group(key)
        if group is not None and group.must_have_stopped(self.now()) and not group.counts_only_pods:
            self.decide_again(self._update(key))

    def setup(self, key: NamespacedName) -> Setup | None:
        """Return a setup by its key."""
        return self._setups.get(key)

    def replacement_of(self, key: NamespacedName) -> NamespacedName | None:
        """Return the newer setup because of which this one governs no namespace."""
        if key in self._governance.setups:
            return self._governance.replaced_by(key)
        return self._governance.governors.get(key.namespace)

    def decide(self, key: NamespacedName, now: float) -> Totals:
        """Decide about the queue of a setup at ``now`` (seconds since the epoch), and record the verdicts.

        Returns the numbers after the decision.
        """
        setup = self._setups.get(key)
        if setup is None or not self.is_started:
            return Totals()
        groups = [
            group
            for namespace in self._governance.namespaces_of(key)
            for group in self._groups.get(namespace, _NO_GROUPS).values()
        ]
        if not setup.kueue_queue:
            self._carry_out(setup, groups, now)
        return _totals_of(groups)

    def next_decision(self, key: NamespacedName) -> float | None:
        """Return when to decide about the queue of a setup again, in seconds since the epoch, if nothing changes."""
        return self._next_decisions.get(key)

    def _carry_out(self, setup: Setup, groups: list[Group], now: float) -> None:
        waiting = [group.waiting for group in groups if group.waiting is not None]
        holdings = [holding for group in groups if (holding := group.holding_at(now)) is not None]
        impatient = {
            group.waiting.key
            for group in groups
            if group.waiting is not None and group.is_late(group.releasing_since, now)
        }
        _forget_past(self._last, now)
        _forget_past(self._refused, now)
        no_evictions = self._last.keys() | self._refused.keys()
        decision = decide(setup.policy, waiting, holdings, now, self._last, no_evictions, impatient)
        for key in decision.admit:
            group = self._groups[key.namespace][key.name]
            group.is_assumed = True
            group.reason = ADMITTED
            group.position = 0
            self._admissions.add(key, setup.key)
            self._refresh(key)
        if decision.admit:
            # The others follow one by one, so that the statuses are written in the order of the decisions.
            self.notify(self._admissions.first(setup.key))
        for key in decision.preempt:
            group = self._groups[key.namespace][key.name]
            group.is_evicting = True
            group.reason = EVICTED_BY_QUEUE
            group.position = 0
            self._refresh(key)
        self.notify(decision.preempt)
        self.notify(self._blocked(decision.blocked, str(setup.key)))
        self._record_releases(setup.key, groups, decision.blocked, impatient, now)

    def _record_releases(
        self,
        setup: NamespacedName,
        groups: Iterable[Group],
        blocked: Mapping[NamespacedName, Blocked],
        impatient: Collection[NamespacedName],
        now: float,
    ) -> None:
        """Record since when jobs wait for what is being released, and when that has taken too long.

        The wait of an ``impatient`` job begins again, because it counts what was evicted for it.
        """
        since: list[float] = []
        for group in groups:
            waiting = group.waiting
            if waiting is None or blocked.get(waiting.key) is not Blocked.RELEASING:
                group.releasing_since = 0.0
            elif waiting.key in impatient or not group.releasing_since:
                group.releasing_since = now
            if group.releasing_since:
                since.append(group.releasing_since)
        self._next_decisions.pop(setup, None)
        if since:
            ending = (group.ending_since for group in groups)
            since += [begin for begin in ending if begin + RELEASE_SECONDS > now]
            self._next_decisions[setup] = min(since) + RELEASE_SECONDS

    def _blocked(self, blocked: Mapping[NamespacedName, Blocked], setup: str) -> list[Request]:
        """Record why jobs wait; return those whose status does not say so."""
        changed: list[Request] = []
        queued = 0
        for key, reason in blocked.items():
            group = self._groups[key.namespace][key.name]
            position = 0
            if reason is not Blocked.TOO_LARGE:
                queued += 1
                position = queued
            job = group.job
            assert job is not None
            is_reported = job.reason == reason.value and job.setup == setup
            if is_reported and not position_changed(job.position, position):
                group.reason = ""
            else:
                group.reason = reason.value
                group.position = position
                changed.append(key)
        return changed

    # Events.

    def on_job(self, event: Event) -> list[Request]:
        """Record a FluxJob."""
        group = self._group_for(event)
        old = group.job
        job = _decode(event.key, job_record, event.current, old)
        group.job = job
        self._record_wasted_quota(event.key.namespace, group, old)
        if job is None or old is None or job.uid != old.uid or job.generation != old.generation:
            group.is_assumed = False
            group.is_evicting = False
            group.reason = ""
        if job is not None and _shows_admission(job):
            group.is_assumed = False
        if job is not None and _shows_eviction(job):
            group.is_evicting = False
        governor = self._governance.governors.get(event.key.namespace)
        requests = self._update(event.key)
        if governor is not None and _counts_as(old) != _counts_as(job):
            requests.append(governor)
        return requests

    def on_cluster(self, event: Event) -> list[Request]:
        """Record a MiniCluster."""
        group = self._group_for(event)
        group.cluster = _decode(event.key, cluster_record, event.current, group.cluster)
        return self._update(event.key)

    def on_batch_job(self, event: Event) -> list[Request]:
        """Record the Job of a MiniCluster, which has the same name."""
        group = self._group_for(event)
        group.batch = _decode(event.key, batch_record, event.current, group.batch)
        return self._update(event.key)

    def on_pod(self, event: Event) -> list[Request]:
        """Record a pod of a MiniCluster, which its label named when it was seen first."""
        key = event.key
        entry = event.current
        known = self._pod(key)
        if entry is None:
            if known is None or not known.demand.pods:
                return self._forget_pod(key)
            self._lost.setdefault(key.namespace, {})[key.name] = known.uid
            self.verify((NamespacedName("", key.namespace),))
            return []
        self._find_lost(key)
        meta = entry.meta
        if known is not None and known.uid == meta.uid:
            name = self._clusters_of_pods[key.namespace][key.name]
            return self._set_pod(key, name, _decode(key, pod_record, entry, known))
        requests = self._forget_pod(key)
        name = meta.labels.get(MINICLUSTER_LABEL, "")
        if name:
            unknown = PodRecord(
                meta.uid,
                owner_of_pod(meta),
                _UNKNOWN_POD,
                has_node=True,
                has_started=True,
                has_ended=False,
                is_deleting=meta.is_deleting,
            )
            requests += self._set_pod(key, name, _decode(key, pod_record, entry, unknown))
        return requests

    def on_setup(self, event: Event) -> list[Request]:
        """Record a FluxSetup, also if the cache has no room for it: another one would govern, or none.

        A change of its status or metadata changes nothing.
        """
        key = event.key
        known = self._setups.get(key)
        new: Setup | None = None
        current = event.current
        if current is not None and not current.meta.is_deleting:
            new = setup_of(current.object(), self.admin_namespaces)
        if new == known:
            return []
        if new is None:
            del self._setups[key]
            self._next_decisions.pop(key, None)
        else:
            self._setups[key] = new
        if known is not None:
            self._remove_by_age(known)
        if new is not None and new.problem is None:
            insort(self._by_age.setdefault(key.namespace, []), new, key=_age)
            if new.selector is not None:
                insort(self._selecting, new, key=_age)
        if not self.is_started:
            return []
        namespaces = {key.namespace: None}
        for setup in (known, new):
            namespaces |= dict.fromkeys(self._selected_by(setup))
        return list(dict.fromkeys((key, *self._govern_again(namespaces))))

    def _selected_by(self, setup: Setup | None) -> list[str]:
        """Return the namespaces that the selector of a setup matches."""
        if setup is None or setup.selector is None or setup.problem is not None:
            return []
        namespaces = self._namespaces()
        return [name for name in namespaces if setup.selects(name, self._labels_of(name))]

    def on_namespace(self, event: Event) -> list[Request]:
        """Record the labels of a namespace."""
        name = event.key.name
        if event.new is None:
            known = self._labels.pop(name, None)
            return self._govern_again((name,)) if known is not None else []
        labels = dict(event.new.meta.labels)
        if self._labels.get(name) == labels:
            return []
        self._labels[name] = labels
        return self._govern_again((name,))

    def on_priority_class(self, event: Event) -> list[Request]:
        """Record the value of a PriorityClass."""
        name = event.key.name
        value = int(event.new.object().get("value") or 0) if event.new is not None else None
        if self._classes.get(name) == value:
            return []
        if value is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = value
        users = [
            NamespacedName(namespace, job_name)
            for namespace, groups in self._groups.items()
            for job_name, group in groups.items()
            if group.job is not None and group.job.priority_class == name
        ]
        requests: list[Request] = []
        for key in users:
            requests += self._update(key)
        return list(dict.fromkeys(requests))

    # Lost pods.

    def has_lost_pods(self, namespace: str) -> bool:
        """Return whether a namespace has lost pods."""
        return namespace in self._lost

    def lost_pods(self, namespace: str) -> Mapping[str, str]:
        """Return the uids of the lost pods of a namespace by name, as a copy."""
        return dict(self._lost.get(namespace, _NO_LABELS))

    def settle_lost(
        self, namespace: str, lost: Mapping[str, str], active: Iterable[PodMeta]
    ) -> list[Request]:
        """Forget those of the ``lost`` pods that are not ``active``; return the setups that this may have changed.

        ``active``: all pods of the namespace that have not ended, by a list that began after ``lost`` was returned.
        """
        uids = {pod.uid for pod in active}
        requests: list[Request] = []
        for name, uid in lost.items():
            is_lost = self._lost.get(namespace, _NO_LABELS).get(name) == uid
            if is_lost and uid not in uids:  # an event may have been newer than the list
                key = NamespacedName(namespace, name)
                self._find_lost(key)
                requests += self._forget_pod(key)
        return requests

    # Implementation.

    def _record_wasted_quota(self, namespace: str, group: Group, old: JobRecord | None) -> None:
        """Let jobs of the namespace come last if this job, which was ``old``, held quota without its pods."""
        job = group.job
        if job is not None and job.gave_up:
            _extend(self._last, namespace, job.gave_up + _LAST_SECONDS)
        if job is not None and job.is_refused:
            _extend(self._refused, namespace, self.now() + _LAST_SECONDS)
        if job is not None and job.holds and not (old is not None and old.holds):
            group.had_pods = group.has_all_pods
        held = old is not None and old.is_admitted and old.holds
        if old is None or not held or (job is not None and (job.holds or job.has_succeeded)):
            return
        if group.had_pods or group.has_all_pods:
            return
        now = self.now()
        seconds = min((now - old.started) * _LAST_SHARE, _LAST_SECONDS)
        _extend(self._last, namespace, now + seconds)

    def _pod(self, key: NamespacedName) -> PodRecord | None:
        cluster = self._clusters_of_pods.get(key.namespace, _NO_LABELS).get(key.name)
        if cluster is None:
            return None
        pods = self._groups[key.namespace][cluster].pods
        return pods[key.name] if pods is not None else None

    def _set_pod(self, key: NamespacedName, cluster: str, pod: PodRecord | None) -> list[Request]:
        group_key = NamespacedName(key.namespace, cluster)
        group = self._groups.setdefault(key.namespace, {}).setdefault(cluster, Group())
        before = (group.has_pods, group.service_pod)
        group.set_pod(key.name, pod)
        self._report_changed_pods(group_key, group, *before)
        if pod is not None:
            self._clusters_of_pods.setdefault(key.namespace, {})[key.name] = intern(cluster)
        return self._update(group_key)

    def _report_changed_pods(
        self,
        key: NamespacedName,
        group: Group,
        had_pods: tuple[bool, bool],
        service_before: ServicePod | None,
    ) -> None:
        """Notify a job that has lost a pod that it needs, or whose service pod has changed: no other event says that.

        The status of the MiniCluster says how many of the other pods exist.
        """
        has_changed = group.has_pods < had_pods or group.service_pod is not service_before
        if has_changed and _holds_without_pods(group.job):
            self.notify((key,))

    def _forget_pod(self, key: NamespacedName) -> list[Request]:
        clusters = self._clusters_of_pods.get(key.namespace)
        if clusters is None or key.name not in clusters:
            return []
        cluster = clusters.pop(key.name)
        if not clusters:
            del self._clusters_of_pods[key.namespace]
        return self._set_pod(key, cluster, None)

    def _find_lost(self, key: NamespacedName) -> None:
        """Record that a pod is not lost any more."""
        lost = self._lost.get(key.namespace)
        if lost is None:
            return
        lost.pop(key.name, None)
        if not lost:
            del self._lost[key.namespace]

    def _group(self, key: NamespacedName) -> Group | None:
        return self._groups.get(key.namespace, {}).get(key.name)

    def _group_for(self, event: Event) -> Group:
        groups = self._groups.setdefault(event.key.namespace, {})
        return groups.setdefault(event.key.name, Group())

    def _remove_by_age(self, setup: Setup) -> None:
        if setup.problem is not None:
            return
        namespace = setup.key.namespace
        setups = self._by_age[namespace]
        del setups[bisect_left(setups, _age(setup), key=_age)]
        if not setups:
            del self._by_age[namespace]
        if setup.selector is not None:
            del self._selecting[bisect_left(self._selecting, _age(setup), key=_age)]

    def _govern_again(self, namespaces: Iterable[str]) -> list[Request]:
        """Determine who governs namespaces; return the setups for which that has changed."""
        if not self.is_started:
            return []
        before = {namespace: self._governance.governor(namespace) for namespace in namespaces}
        changed = self._govern(self._governance, before)
        for namespace, governor in before.items():
            if governor != self._governance.governor(namespace):
                self._refresh_namespace(namespace)
        return changed

    def _govern(self, governance: Governance, namespaces: Iterable[str]) -> list[NamespacedName]:
        """Record in ``governance`` who governs namespaces; return the setups for which that has changed."""
        changed: dict[NamespacedName, None] = {}
        selecting = self._selecting[::-1]
        for namespace in namespaces:
            if self._exists(namespace):
                local = self._local_setups(namespace)
                labels = self._labels_of(namespace)
                found = governance.govern(namespace, labels, local, selecting)
            elif namespace in governance:
                found = governance.forget(namespace)
            else:
                continue
            changed |= dict.fromkeys(found)
        return list(changed)

    def _local_setups(self, namespace: str) -> list[Setup]:
        """Return the setups in a namespace that can govern, the newest first."""
        newest_first = self._by_age.get(namespace, [])[::-1]
        if namespace in self.admin_namespaces:
            return newest_first
        return newest_first[:_MAX_SETUPS]

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        return self._labels.get(namespace, _NO_LABELS)

    def _exists(self, namespace: str) -> bool:
        """Return whether a namespace exists, or anything in it, whose event came earlier."""
        return namespace in self._labels or namespace in self._groups or namespace in self._by_age

    def _namespaces(self) -> dict[str, None]:
        """Return all namespaces that exist."""
        return dict.fromkeys((*self._groups, *self._by_age, *self._labels))

    def _update(self, key: NamespacedName) -> list[Request]:
        """Compute what follows from changed records; return the setup if its queue may have changed."""
        if not self.is_started:
            return []
        changed: list[Request] = []
        if key.namespace not in self._governance:
            changed += self._govern_again((key.namespace,))  # its event has not arrived yet
        governor = self._governance.governors.get(key.namespace)
        if self._refresh(key) and governor is not None:
            changed.append(governor)
        return changed

    def _refresh_namespace(self, namespace: str) -> None:
        for name in list(self._groups.get(namespace, ())):
            self._refresh(NamespacedName(namespace, name))

    def _refresh(self, key: NamespacedName) -> bool:
        """Compute whether a job waits and what its group holds; return whether that has changed."""
        groups = self._groups.get(key.namespace, {})
        group = groups.get(key.name)
        if group is None:
            return False
        setup = self._governance.governor(key.namespace)
        before = (group.has_pods, group.service_pod)
        group.count_pods(setup)
        self._report_changed_pods(key, group, *before)
        waiting = group.waiting
        holding = group.holding
        group.counts_only_pods = group.must_have_stopped(self.now())
        group.waiting = self._waiting(key, group, setup)
        group.holding = holding_of(key, group, setup, self._priority(group.job) or 0)
        if group.holding is None or not group.holding.releasing:
            group.ending_since = 0.0
        elif not group.ending_since:
            group.ending_since = self.now()
        if key in self._admissions and not group.is_assumed:
            self.notify(self._admissions.remove(key))
        job = group.job
        is_evicted = job is not None and job.is_reserved and job.is_evicted
        if group.is_empty:
            del groups[key.name]
            if not groups:
                self._forget_groups(key.namespace)
        elif is_evicted and self.is_drained(key):
            self.notify((key,))
        return waiting != group.waiting or holding != group.holding

    def _forget_groups(self, namespace: str) -> None:
        del self._groups[namespace]
        if not self._exists(namespace) and namespace in self._governance:
            self.decide_again(self._governance.forget(namespace))

    def _waiting(self, key: NamespacedName, group: Group, setup: Setup | None) -> WaitingJob | None:
        """Return the job if it waits for this queue; if it waits for something else, record that as its verdict."""
        job = group.job
        if job is None or not job.is_pending or group.is_assumed:
            if not group.is_assumed and not group.is_evicting:
                group.reason = ""
            return None
        obstacle = obstacle_of(key, group, setup, priority=self._priority(job))
        if obstacle is None:
            assert setup is not None
            if group.waiting is None:
                group.reason = ""  # the next decision determines it
            demand = group.demand_of_job(setup)
            priority = self._priority(job) or 0
            return WaitingJob(
                key, demand, priority=priority, queued=job.queued, duration=job.duration
            )
        reason, _ = obstacle
        setup_name = str(setup.key) if setup is not None else ""
        is_reported = job.reason == reason and job.setup == setup_name
        needs_cluster = reason == WAITING_FOR_KUEUE and group.cluster is None
        if is_reported and not needs_cluster:
            group.reason = ""
        else:
            group.reason = reason
            group.position = 0
            self.notify((key,))
        return None

    def _priority(self, job: JobRecord | None) -> int | None:
        """Return the priority of a job; ``None`` if its PriorityClass does not exist."""
        if job is None:
            return 0
        if not job.priority_class:
            return job.priority or 0
        return self._classes.get(job.priority_class)


def _decode(
    key: NamespacedName, decode: Callable[[_S], _T | None], obj: _S | None, known: _T | None
) -> _T | None:
    """Return the record of the current state of an object; ``known``, its last one, if that cannot be decoded."""
    if obj is None:
        return None
    try:
        return decode(obj)
    except (msgspec.DecodeError, ValueError) as error:
        _log.warning("Ignoring object with invalid values", object=str(key), error=str(error))
        return known


def _age(setup: Setup) -> tuple[str, NamespacedName]:
    """Return by what setups are ordered, so that the newest one is the last."""
    return setup.created, setup.key


def _totals_of(groups: Iterable[Group]) -> Totals:
    pods = 0
    admitted = 0
    pending = 0
    without_job = 0
    for group in groups:
        if group.holding is not None:
            pods += group.holding.demand.pods
            if group.cluster is not None and not group.cluster.job_uid:
                without_job += group.holding.demand.pods
        if group.job is None or group.job.is_finished:
            continue
        if group.job.is_reserved or group.is_assumed:
            admitted += 1
        else:
            pending += 1
    return Totals(pods, admitted, pending, without_job)


def _holds_without_pods(job: JobRecord | None) -> bool:
    """Return whether a job without pods must give its quota back, unless it gets others."""
    return job is not None and job.is_admitted and not job.is_evicted


def _extend(times: dict[str, float], namespace: str, until: float) -> None:
    times[namespace] = max(times.get(namespace, 0.0), until)


def _forget_past(times: dict[str, float], now: float) -> None:
    """Forget the namespaces for which ``times`` have come."""
    for namespace, until in list(times.items()):
        if until <= now:
            del times[namespace]


def _shows_admission(job: JobRecord) -> bool:
    """Return whether an admission that was decided is visible, or cannot happen any more."""
    is_admissible = job.is_valid and not job.is_deleting and not job.is_queued_by_kueue
    return job.is_reserved or job.is_finished or not is_admissible


def _shows_eviction(job: JobRecord) -> bool:
    """Return whether an eviction that was decided is visible, or cannot happen any more."""
    return job.is_evicted or not job.is_reserved


def _counts_as(job: JobRecord | None) -> str:
    """Return as what a job appears in the numbers of its setup."""
    if job is None or job.is_finished:
        return ""
    return "admitted" if job.is_reserved else "pending"
