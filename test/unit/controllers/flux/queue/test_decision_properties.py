"""Properties of the queue that hold for all policies, jobs and holdings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cfo.api.flux.names import QueueingStrategy
from cfo.controllers.flux.queue.decision import decide
from cfo.controllers.flux.queue.model import (
    FOREVER,
    Blocked,
    Demand,
    Holding,
    Policy,
    QueueDecision,
    WaitingJob,
)
from cfo.runtime import NamespacedName

NOW = 1000.0

PROPERTY = settings(max_examples=20, deadline=None, database=None, derandomize=True)
"""The same examples in each run, and no time limit, because the machine may be busy."""

demands = st.builds(
    Demand,
    pods=st.integers(1, 8),
    resources=st.sampled_from(
        [{}, {"cpu": 500}, {"cpu": 3000}, {"gpu": 1000}, {"cpu": 1000, "gpu": 2000}]
    ),
)
priorities = st.integers(-1, 2)
namespaces = st.sampled_from(["a", "b", "c"])
durations = st.sampled_from([5.0, 60.0, 3600.0, FOREVER])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    return Policy(
        pods=draw(st.integers(0, 20)),
        jobs=draw(st.none() | st.integers(0, 5)),
        resources=draw(st.sampled_from([{}, {"cpu": 4000}, {"cpu": 6000, "gpu": 3000}])),
        strategy=draw(st.sampled_from(QueueingStrategy)),
        shares_by_namespace=draw(st.booleans()),
        weights=draw(st.dictionaries(namespaces, st.integers(1, 3), max_size=2)),
        preempts=draw(st.booleans()),
    )


@st.composite
def waiting_jobs(draw: st.DrawFn, max_size: int = 12) -> list[WaitingJob]:
    return [
        WaitingJob(
            NamespacedName(draw(namespaces), f"w{number}"),
            draw(demands),
            priority=draw(priorities),
            queued=float(draw(st.integers(0, 5))),
            duration=draw(durations),
        )
        for number in range(draw(st.integers(0, max_size)))
    ]


@st.composite
def holdings(draw: st.DrawFn, max_size: int = 6) -> list[Holding]:
    return [
        Holding(
            NamespacedName(draw(namespaces), f"h{number}"),
            draw(demands),
            priority=draw(priorities),
            created=float(draw(st.integers(0, 5))),
            end=draw(st.sampled_from([NOW - 5, NOW, NOW + 30, NOW + 600, FOREVER])),
            releasing=draw(st.booleans()),
            preemptible=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, max_size)))
    ]


def used(policy: Policy, usage: Collection[Holding]) -> tuple[int, ...]:
    """Return pods, jobs and resources in use."""
    resources = (
        sum(holding.demand.resources.get(name, 0) for holding in usage)
        for name in sorted(policy.resources)
    )
    return sum(holding.demand.pods for holding in usage), len(usage), *resources


def quota(policy: Policy) -> tuple[float, ...]:
    jobs = FOREVER if policy.jobs is None else policy.jobs
    return policy.pods, jobs, *(policy.resources[name] for name in sorted(policy.resources))


def takes(policy: Policy, job: WaitingJob | Holding) -> tuple[int, ...]:
    return used(policy, [Holding(job.key, job.demand)])


def admitted(job: WaitingJob, now: float = NOW) -> Holding:
    """Return what the job holds after its admission."""
    return Holding(
        job.key, job.demand, priority=job.priority, created=job.queued, end=now + job.duration
    )


def carried_out(
    decision: QueueDecision, jobs: Sequence[WaitingJob], usage: Sequence[Holding], now: float = NOW
) -> tuple[list[WaitingJob], list[Holding]]:
    """Return the waiting jobs and the usage after the decision."""
    evicted = set(decision.preempt)
    after = [
        Holding(
            item.key,
            item.demand,
            priority=item.priority,
            created=item.created,
            end=item.end,
            releasing=True,
        )
        if item.key in evicted
        else item
        for item in usage
    ]
    taken = set(decision.admit)
    after += [admitted(job, now) for job in jobs if job.key in taken]
    return [job for job in jobs if job.key not in taken], after


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_admissions_never_exceed_the_quota(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    decision = decide(policy, jobs, usage, NOW)
    taken = [admitted(job) for job in jobs if job.key in decision.admit]
    for amount, before, limit in zip(
        used(policy, [*usage, *taken]), used(policy, usage), quota(policy), strict=True
    ):
        assert amount <= max(limit, before)


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_each_job_is_either_admitted_or_blocked_with_a_reason(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    decision = decide(policy, jobs, usage, NOW)
    assert sorted([*decision.admit, *decision.blocked]) == sorted(job.key for job in jobs)


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_deciding_again_changes_nothing(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    assume(not (policy.shares_by_namespace and policy.preempts))
    decision = decide(policy, jobs, usage, NOW)
    again = decide(policy, *carried_out(decision, jobs, usage), NOW)
    assert again.admit == ()
    assert again.preempt == ()
    assert list(again.blocked) == list(decision.blocked) or policy.shares_by_namespace


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_decisions_come_to_an_end(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    for _ in range(len(jobs) + len(usage) + 1):
        decision = decide(policy, jobs, usage, NOW)
        if not decision.admit and not decision.preempt:
            return
        jobs, usage = carried_out(decision, jobs, usage)
    raise AssertionError("decisions continue although nothing changes")


@PROPERTY
@given(policies(), waiting_jobs(), holdings(), st.randoms())
def test_decision_does_not_depend_on_the_order_of_its_input(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding], random: object
) -> None:
    expected = decide(policy, jobs, usage, NOW)
    random.shuffle(jobs)  # type: ignore[attr-defined]
    random.shuffle(usage)  # type: ignore[attr-defined]
    result = decide(policy, jobs, usage, NOW)
    assert result == expected
    assert list(result.blocked) == list(expected.blocked)


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_equal_jobs_are_admitted_in_the_order_of_their_creation(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    decision = decide(policy, jobs, usage, NOW)
    for first in jobs:
        for second in jobs:
            equal = (first.demand, first.priority, first.duration) == (
                second.demand,
                second.priority,
                second.duration,
            )
            same_queue = (
                not policy.shares_by_namespace or first.key.namespace == second.key.namespace
            )
            if equal and same_queue and first.rank < second.rank:
                assert first.key in decision.admit or second.key not in decision.admit


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_strict_fifo_admits_a_prefix_of_the_queue(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    policy = replace(policy, strategy=QueueingStrategy.STRICT_FIFO, shares_by_namespace=False)
    decision = decide(policy, jobs, usage, NOW)
    order = [
        job.key
        for job in sorted(jobs, key=lambda job: job.rank)
        if decision.blocked.get(job.key) is not Blocked.TOO_LARGE
    ]
    assert list(decision.admit) == order[: len(decision.admit)]


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_best_effort_leaves_no_job_waiting_that_fits(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    policy = replace(policy, strategy=QueueingStrategy.BEST_EFFORT_FIFO, preempts=False)
    decision = decide(policy, jobs, usage, NOW)
    waiting, after = carried_out(decision, jobs, usage)
    for job in waiting:
        total = used(policy, [*after, admitted(job)])
        takes_any = takes(policy, job)
        assert any(
            amount > limit and own
            for amount, limit, own in zip(total, quota(policy), takes_any, strict=True)
        )


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_a_job_that_is_too_large_changes_nothing_for_others(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    expected = decide(policy, jobs, usage, NOW)
    giant = WaitingJob(NamespacedName("a", "giant"), Demand(policy.pods + 1), priority=99)
    decision = decide(policy, [giant, *jobs], usage, NOW)
    assert decision.blocked[giant.key] is Blocked.TOO_LARGE
    assert (decision.admit, decision.preempt) == (expected.admit, expected.preempt)


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_only_jobs_of_lower_priority_are_evicted(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    decision = decide(policy, jobs, usage, NOW)
    if not policy.preempts:
        assert decision.preempt == ()
    by_key = {holding.key: holding for holding in usage}
    gaining = [job for job in jobs if decision.blocked.get(job.key) is Blocked.RELEASING]
    for key in decision.preempt:
        victim = by_key[key]
        assert victim.preemptible
        assert not victim.releasing
        assert any(
            job.priority > victim.priority
            and (not policy.shares_by_namespace or job.key.namespace == key.namespace)
            for job in gaining
        )


@PROPERTY
@given(
    policies(),
    waiting_jobs(),
    holdings(),
    st.dictionaries(namespaces, st.sampled_from([1.0, 2.0]), max_size=2),
)
def test_jobs_of_the_last_namespaces_change_nothing_for_those_of_others(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding], last: dict[str, float]
) -> None:
    others = [job for job in jobs if job.key.namespace not in last]
    expected = decide(policy, others, usage, NOW)
    decision = decide(policy, jobs, usage, NOW, last, last.keys())
    assert decision.preempt == expected.preempt
    assert tuple(key for key in decision.admit if key.namespace not in last) == expected.admit
    assert {
        key: reason for key, reason in decision.blocked.items() if key.namespace not in last
    } == expected.blocked


@PROPERTY
@given(policies(), waiting_jobs(), holdings())
def test_evictions_make_room_for_the_jobs_they_are_for(
    policy: Policy, jobs: list[WaitingJob], usage: list[Holding]
) -> None:
    decision = decide(policy, jobs, usage, NOW)
    waiting, after = carried_out(decision, jobs, usage)
    remaining = [holding for holding in after if not holding.releasing]
    gaining = {key for key, reason in decision.blocked.items() if reason is Blocked.RELEASING}
    if gaining:
        total = used(
            policy, [*remaining, *(admitted(job) for job in waiting if job.key in gaining)]
        )
        own = used(policy, [admitted(job) for job in waiting if job.key in gaining])
        assert all(
            amount <= limit or not gained
            for amount, limit, gained in zip(total, quota(policy), own, strict=True)
        )


@dataclass
class Simulation:
    """Runs jobs until the end of their durations; jobs arrive over time, all with the same priority."""

    policy: Policy
    now: float = NOW

    def run(self, arrivals: list[tuple[float, WaitingJob]]) -> dict[NamespacedName, float]:
        """Return the time at which each job started."""
        waiting: list[WaitingJob] = []
        usage: list[Holding] = []
        started: dict[NamespacedName, float] = {}
        pending = sorted(arrivals, key=lambda item: item[0])
        while pending or waiting:
            while pending and pending[0][0] <= self.now:
                waiting.append(pending.pop(0)[1])
            usage = [holding for holding in usage if holding.end > self.now]
            decision = decide(self.policy, waiting, usage, self.now)
            started |= dict.fromkeys(decision.admit, self.now)
            waiting, usage = carried_out(decision, waiting, usage, self.now)
            moments = [holding.end for holding in usage] + [moment for moment, _ in pending[:1]]
            if not moments:
                break
            self.now = min(moments)
        return started


@st.composite
def arriving_jobs(draw: st.DrawFn) -> list[tuple[float, WaitingJob]]:
    jobs = []
    for number in range(draw(st.integers(1, 25))):
        moment = NOW + draw(st.integers(0, 60))
        demand = Demand(draw(st.integers(1, 8)))
        duration = float(draw(st.integers(1, 30)))
        key = NamespacedName("a", f"w{number:02}")
        jobs.append((moment, WaitingJob(key, demand, queued=moment, duration=duration)))
    return jobs


@PROPERTY
@given(arriving_jobs())
def test_backfill_starves_no_job(arrivals: list[tuple[float, WaitingJob]]) -> None:
    """A job starts no later than when all jobs before it, one after the other, would have ended."""
    policy = Policy(pods=8, strategy=QueueingStrategy.BACKFILL)
    started = Simulation(policy).run(arrivals)
    assert len(started) == len(arrivals)
    jobs = sorted((job for _, job in arrivals), key=lambda job: job.rank)
    for index, job in enumerate(jobs):
        # each job before it delays it by at most its own duration, and so do jobs that ran when it came first
        bound = job.queued + sum(before.duration for before in jobs[:index]) + 30 * (index + 1)
        assert started[job.key] <= bound


@PROPERTY
@given(arriving_jobs())
def test_backfill_never_delays_the_first_job(arrivals: list[tuple[float, WaitingJob]]) -> None:
    """The first job that does not fit starts no later than if no other job had been admitted after it came first."""
    jobs = [job for _, job in arrivals]
    policy = Policy(pods=8, strategy=QueueingStrategy.BACKFILL)
    decision = decide(policy, jobs, [], NOW)
    assume(Blocked.QUOTA in decision.blocked.values())
    first = next(job for job in jobs if decision.blocked.get(job.key) is Blocked.QUOTA)
    before = sorted((job for job in jobs if job.rank < first.rank), key=lambda job: job.rank)
    passing = [job for job in jobs if job.key in decision.admit and job.rank > first.rank]

    def start(running: list[WaitingJob]) -> float:
        ends = sorted((NOW + job.duration, job.demand.pods) for job in running)
        free = policy.pods - sum(pods for _, pods in ends)
        for end, pods in ends:
            free += pods
            if free >= first.demand.pods:
                return end
        raise AssertionError("never starts")

    assert start([*before, *passing]) <= start(before)


def test_jobs_pass_a_large_job_forever_only_without_backfill() -> None:
    """The reason for Backfill: small jobs that keep arriving starve a large one under BestEffortFIFO."""
    small = [
        (
            NOW + 5 * number,
            WaitingJob(
                NamespacedName("a", f"s{number}"), Demand(4), queued=NOW + 5 * number, duration=9
            ),
        )
        for number in range(20)
    ]
    large = WaitingJob(NamespacedName("a", "large"), Demand(8), queued=NOW + 1, duration=9)
    arrivals = [*small, (NOW + 1, large)]
    starved = Simulation(Policy(pods=8)).run(arrivals)
    served = Simulation(Policy(pods=8, strategy=QueueingStrategy.BACKFILL)).run(arrivals)
    assert starved[large.key] >= max(moment for key, moment in starved.items() if key != large.key)
    assert served[large.key] <= NOW + 9
