"""Sample objects for the dashboard, and an overview of them that needs no informers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import milliseconds
from cfo.runtime import GVK, NamespacedName, rfc3339
from cfo.summaries.changes import ChangeType, SummaryChange
from cfo.summaries.kind_view import Related, related_objects
from cfo.summaries.summary import Level, Problem, Summary, SummaryCondition, WarningEvent
from test.support.summaries import VIEWS

__all__ = ["FakeInformer", "FakeOverview", "samples", "summary"]


class FakeInformer:
    """An informer that has synced, or cannot: ``problem`` says why; also after it has ``synced``."""

    def __init__(
        self,
        gvk: GVK,
        problem: str = "",
        *,
        is_forbidden: bool = False,
        is_not_served: bool = False,
        synced: bool = False,
    ) -> None:
        self.gvk = gvk
        self.problem = problem
        self.is_forbidden = is_forbidden
        self.is_not_served = is_not_served
        self._synced = synced
        self._handlers: list[Any] = []

    @property
    def has_synced(self) -> bool:
        return self._synced or not self.problem

    def add_state_handler(self, handler: Any) -> None:
        self._handlers.append(handler)

    def remove_state_handler(self, handler: Any) -> None:
        self._handlers.remove(handler)

    def set_problem(self, problem: str) -> None:
        self.problem = problem
        for handler in self._handlers:
            handler()


class FakeOverview:
    """An overview of the summaries that :meth:`put` and :meth:`remove` change; :attr:`starts` counts its use."""

    def __init__(
        self, summaries: Iterable[Summary] = (), informers: Iterable[FakeInformer] = ()
    ) -> None:
        self.summaries = {each.uid: each for each in summaries}
        self.informers = tuple(informers)
        self.views = VIEWS
        self.related: dict[NamespacedName, Related] = {}
        self.incomplete: dict[GVK, str] = {}
        self.left_out_handlers: list[Any] = []
        self.starts = 0
        self.is_running = False
        self._batches: list[SummaryChange] = []
        self._changed = anyio.Event()

    def put(self, *summaries: Summary) -> None:
        for each in summaries:
            kind = ChangeType.CHANGED if each.uid in self.summaries else ChangeType.ADDED
            self.summaries[each.uid] = each
            self._batches.append(SummaryChange(kind, each))
        self._changed.set()

    def remove(self, uid: str) -> None:
        self._batches.append(SummaryChange(ChangeType.REMOVED, self.summaries.pop(uid)))
        self._changed.set()

    def related_objects(self, gvk: GVK, key: NamespacedName) -> dict[str, list[tuple[str, str]]]:
        return related_objects(self.views[gvk], key, self.related.get(key, Related()))

    def left_out(self) -> dict[GVK, str]:
        return dict(self.incomplete)

    def add_left_out_handler(self, handler: Any) -> None:
        self.left_out_handlers.append(handler)

    async def snapshot(self) -> list[Summary]:
        return list(self.summaries.values())

    @contextmanager
    def subscribe(self) -> Iterator[FakeOverview]:
        self._batches = [SummaryChange(ChangeType.ADDED, each) for each in self.summaries.values()]
        yield self

    async def next(self) -> list[SummaryChange]:
        while not self._batches:
            self._changed = anyio.Event()
            await self._changed.wait()
        batch, self._batches = self._batches, []
        return batch

    async def __aiter__(self) -> AsyncIterator[list[SummaryChange]]:
        while True:
            yield await self.next()

    @asynccontextmanager
    async def source(self) -> AsyncIterator[Any]:
        self.starts += 1
        self.is_running = True
        try:
            yield self
        finally:
            self.is_running = False


def summary(gvk: GVK = RAY_CLUSTER, name: str = "sample", **fields: Any) -> Summary:
    """Return a summary; ``fields`` replace its defaults."""
    namespace = fields.pop("namespace", "default")
    defaults: dict[str, Any] = {
        "uid": f"{gvk.kind}-{namespace}-{name}",
        "state": "ready",
        "level": Level.OK,
        "ready": "2/2",
        "created": "2026-01-01T00:00:00Z",
    }
    return Summary(gvk=gvk, key=NamespacedName(namespace, name), **{**defaults, **fields})


_TEAMS = ("ml-research", "nlp", "vision", "fraud-detection")
_MODELS = (
    "train-bert",
    "tune-llama",
    "batch-score",
    "ablation",
    "sweep",
    "embeddings",
    "export",
    "eval",
)


def samples(count: int, now: datetime | None = None) -> list[Summary]:
    """Return ``count`` RayClusters in various states, with AppWrappers, queues with jobs, and InferenceStacks."""
    now = now or datetime.now(UTC)
    return [
        *(_cluster(index, now) for index in range(count)),
        *(_wrapper(index, now) for index in range(min(count, 60) * 2 // 3)),
        *(_queues(now) if count else ()),
        *(_stack(index, now) for index in range(3 if count else 0)),
    ]


def _name(index: int) -> str:
    return f"{_MODELS[index % len(_MODELS)]}-{index:03d}"


def _before(now: datetime, **period: float) -> str:
    return rfc3339(now - timedelta(**period))


def _cluster(index: int, now: datetime) -> Summary:
    team, name = _TEAMS[index % len(_TEAMS)], _name(index)
    state, level = "ready", Level.OK
    problems: tuple[Problem, ...] = ()
    workers = 2 + index % 7
    ready = workers
    warnings: tuple[WarningEvent, ...] = ()
    if index % 17 == 5:
        state, level, ready = "failed", Level.FAILED, 0
        problems = (
            Problem(
                "KubeRay cannot create pods: exceeded quota: team-quota, requested: requests.nvidia.com/gpu=8, "
                "used: requests.nvidia.com/gpu=32, limited: 32",
                "request less, or ask the administrator for more quota",
            ),
        )
        warnings = (
            WarningEvent("FailedCreate", problems[0].message, _before(now, minutes=index % 50), 14),
        )
    elif index % 13 == 4:
        level = Level.WARNING
        problems = (
            Problem(
                f"Pod {name}-worker-small-group-x7k2p: container ray-worker used more memory than its limit",
                "raise the memory limit of the container",
            ),
        )
        warnings = (
            WarningEvent(
                "BackOff",
                "Back-off restarting failed container",
                _before(now, minutes=7 + index),
                3,
            ),
        )
    elif index % 5 == 2:
        state, level, ready = "", Level.PROGRESSING, index % workers
    elif index % 11 == 7:
        state, level, ready, workers = "suspended", Level.WAITING, 0, 0
    expiry = now + timedelta(days=20 if index % 9 == 3 else 400 + 97 * (index % 33))
    dashboard = f"https://ray-dashboard-{name}-{team}.apps.example.test" if ready else "not exposed"
    return summary(
        name=name,
        namespace=team,
        uid=f"cluster-{index}",
        state=state,
        level=level,
        ready=f"{ready}/{workers}",
        created=_before(now, hours=1 + 3 * index, minutes=7 * index),
        facts=(
            ("dashboard", dashboard),
            ("ray client", f"ray://rayclient-{name}-{team}.apps.example.test:443"),
            ("authentication", "OAuth proxy"),
            ("mTLS", "by the operator"),
            (
                "CA expires",
                f"{expiry:%Y-%m-%d} (renewed from {expiry - timedelta(days=1200):%Y-%m-%d})",
            ),
            ("network policies", "2 by the operator"),
            ("resources", f"{4 * workers} CPU, {16 * workers}Gi memory, {workers} GPU"),
        ),
        problems=problems,
        conditions=(
            SummaryCondition(
                "HeadPodReady", "True", "HeadPodRunningAndReady", "", _before(now, hours=1)
            ),
            SummaryCondition(
                "RayClusterProvisioned",
                "True",
                "AllPodRunningAndReadyFirstTime",
                "All Ray Pods are ready",
                "",
            ),
        ),
        warnings=warnings,
        row={"expires": milliseconds(expiry), "certificate": "CA of the RayCluster"},
    )


def _wrapper(index: int, now: datetime) -> Summary:
    created = now - timedelta(minutes=4 + 5 * index)
    phases = [
        ("Succeeded", Level.OK),
        ("Running", Level.OK),
        ("Suspended", Level.WAITING),
        ("Failed", Level.FAILED),
    ]
    state, level = phases[(1 if index < 4 else 0) if index % 6 else 2 + (index // 6) % 2]
    conditions = [
        SummaryCondition(
            "QuotaReserved",
            "True",
            "Suspend",
            "",
            rfc3339(created + timedelta(minutes=1 + index % 4)),
        )
    ]
    if state == "Suspended":
        conditions = []
    if state in ("Running", "Succeeded"):
        started = created + timedelta(minutes=1.5 + index % 4)
        conditions.append(
            SummaryCondition(
                "PodsReady", "True", "SufficientPodsReady", "", rfc3339(min(started, now))
            )
        )
    if state in ("Succeeded", "Failed"):
        ended = created + timedelta(minutes=9 + 4 * (index % 5))
        conditions.append(
            SummaryCondition("ResourcesDeployed", "False", state, "", rfc3339(min(ended, now)))
        )
    return summary(
        APPWRAPPER,
        f"job-{_name(index)}",
        namespace=_TEAMS[index % len(_TEAMS)],
        uid=f"wrapper-{index}",
        state=state,
        level=level,
        ready="1/1" if state == "Running" else "0/1",
        created=rfc3339(created),
        facts=(("components", "1 RayCluster"), ("queue", "team-queue")),
        problems=(
            Problem(
                "FoundFailedPods: 1 pod has failed: exit code 137",
                "read the log of the failed pods: kubectl logs",
            ),
        )
        if state == "Failed"
        else (),
        conditions=tuple(conditions),
    )


def _queues(now: datetime) -> Iterator[Summary]:
    for index, (team, used, total, most) in enumerate(
        (("ml-research", 28, 32, 12), ("vision", 16, 16, 0))
    ):
        yield summary(
            FLUX_SETUP,
            "batch",
            namespace=team,
            uid=f"setup-{index}",
            state="Active",
            ready=f"{used}/{total}",
            created=_before(now, days=40),
            facts=(
                ("quota", f"{used} of {total} pods used"),
                ("jobs", f"{5 - index} admitted, {6 - 2 * index} waiting"),
                *((("max jobs", str(most)),) if most else ()),
                ("order", "BestEffortFIFO"),
            ),
            row={
                "quotas": [
                    ("Pods", used, total, str(used), str(total)),
                    *([("Jobs", 5 - index, most, str(5 - index), str(most))] if most else []),
                ]
            },
        )
        for position in range(1, 7 - 2 * index):
            yield job(
                index, team, _MODELS[position], position, _before(now, minutes=40 - 5 * position)
            )
        for running in range(3):
            yield job(
                index, team, f"running-{running}", 0, _before(now, hours=2, minutes=9 * running)
            )


def job(queue: int, team: str, name: str, position: int, created: str) -> Summary:
    """Return a FluxJob that waits at ``position``, or runs."""
    waits = (
        ("position", f"number {position} in the queue"),
        ("why", "Waiting for 8 pods of the quota of FluxSetup batch"),
    )
    return summary(
        FLUX_JOB,
        name,
        namespace=team,
        uid=f"job-{queue}-{name}",
        state="JobWaitingForResources" if position else "JobRunning",
        level=Level.WAITING if position else Level.OK,
        ready="",
        created=created,
        facts=(*(waits if position else ()), ("queue", f"{team}/batch"), ("pods", "8")),
        row={"position": position, "queue": f"{team}/batch"} if position else {},
    )


def _stack(index: int, now: datetime) -> Summary:
    state = "Ready" if index else "Progressing"
    return summary(
        INFERENCE_STACKS[0],
        ("chat", "embeddings", "rerank")[index],
        namespace="serving",
        uid=f"stack-{index}",
        state=state,
        level=Level.OK if index else Level.PROGRESSING,
        ready="2/2" if index else "1/2",
        created=_before(now, days=3 + index),
        facts=(
            ("url", f"https://{('chat', 'embeddings', 'rerank')[index]}.apps.example.test"),
            ("app llama", "Ready, 4/4, meta-llama/Llama-3.1-8B"),
        ),
    )
