"""The faults of the campaign, with what is promised for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from cfo.runtime.client.errors import APIError
from test.faults.campaign import Fault, Scale, Seen
from test.faults.trial import Replica, Trial, tenant_objects
from test.faults.writes import writers
from test.support.clocks import WallClock
from test.support.faulty_proxy import Answer
from test.support.raycluster_environment import eventually

__all__ = ["FAULTS", "rolling_update"]

_CUT_EVERY: Final = 0.3
_CUT_WITHIN_BYTES: Final = 40_000
_LONG_STORM: Final = 20.0
_PATIENT: Final = {"leaseDuration": "60s", "renewDeadline": "45s"}
"""A leader that outlives a restart of the control plane, so that its caches have to notice what changed."""
_MAX_RATE: Final = 100.0
"""How many requests per second a replica may send while all are answered with an error; it has 25 informers."""


async def _new_leader(trial: Trial, former: str) -> float:
    """Wait until another replica leads; return the seconds."""
    started = time.monotonic()

    async def is_other() -> bool:
        with suppress(APIError):
            return await trial.leader() not in ("", former)
        return False

    await eventually(is_other, "another leader")
    return time.monotonic() - started


async def _kill_operator(trial: Trial, scale: Scale, seen: Seen) -> None:
    """Kill the only replica while it works; it is started again, and must wait until its Lease has expired."""
    (replica,) = trial.running
    restarts = replica.restarts
    await trial.add_tenants(scale.tenants)
    replica.kill()
    await trial.add_tenants(scale.tenants)
    seen.facts.append(f"{replica.restarts - restarts} restart")


async def _hand_over(graceful: bool, trial: Trial, scale: Scale, seen: Seen) -> None:
    """End the leader for good while it works, as in a rolling update or a crash of its node; another one takes over."""
    (old,) = trial.running
    trial.start(trial.two)
    await trial.two.ready()
    former = await trial.leader()
    await trial.add_tenants(scale.tenants)
    trial.stop(old, graceful=graceful)
    seconds = await _new_leader(trial, former)
    seen.facts.append(f"new leader after {seconds:.1f} s")
    await trial.add_tenants(scale.tenants)
    order = writers(trial.tenant_writes())
    seen.expect(
        order in ([old.user, trial.two.user], [old.user]),
        f"replicas wrote in turns: {order}",
    )


async def _kill_programs(names: Sequence[str], trial: Trial, scale: Scale, seen: Seen) -> None:
    """Kill programs of the control plane, and start them again after some seconds."""
    (replica,) = trial.running
    await trial.add_tenants(scale.tenants)
    seen.repeats = replica.proxy.connections  # the response of one write may be lost on each
    for name in names:
        await trial.programs.kill_program(name)
    await asyncio.sleep(scale.down_seconds)
    for name in reversed(names):
        await trial.programs.start_program(name)
    await trial.programs.wait_ready()
    await trial.add_tenants(scale.tenants)
    seen.facts.append(f"{replica.restarts} restarts")


async def _restore_etcd(trial: Trial, scale: Scale, seen: Seen) -> None:
    """Put back older data of etcd; tenants that were created later are lost, and created again with the same names."""
    (replica,) = trial.running
    await trial.add_tenants(scale.tenants)
    await trial.complete(60.0)
    await trial.quiet(scale.quiet_seconds, 60.0)
    await trial.back_up()
    kept = list(trial.tenants)
    await trial.add_tenants(scale.tenants)
    await trial.complete(60.0)
    await trial.delete_children(kept[1])
    await trial.complete(60.0)
    await trial.quiet(scale.quiet_seconds, 60.0)
    await trial.restore()
    lost = [name for name in trial.tenants if name not in kept]
    trial.tenants[:] = kept
    trial.forget_writes(lost)
    await trial.add_tenants(scale.tenants)
    seen.facts.append(f"{len(lost)} tenants were lost, and objects that had been recreated")
    seen.expect(replica.restarts == 0, f"{replica.restarts} restarts")


def _use_wall_clock(trial: Trial) -> None:
    trial.one.clock = WallClock()


async def _step_clock(trial: Trial, scale: Scale, seen: Seen) -> None:
    """Step the operator's date forward, back, and forward again, by less than what certificates are backdated."""
    clock = trial.one.clock
    assert isinstance(clock, WallClock)
    former = await trial.leader()
    for minutes in (2, -4, 2):
        clock.step(timedelta(minutes=minutes))
        await trial.add_tenants(scale.tenants)
        await trial.complete(30.0)
    seen.facts.append("+2, -4, +2 minutes")
    seen.expect(await trial.leader() == former, "the leader changed")


async def _cut_streams(trial: Trial, scale: Scale, seen: Seen) -> None:
    """Cut each connection at a random byte, in the middle of objects, and all of them again and again."""
    (replica,) = trial.running
    proxy = replica.proxy
    before = proxy.cuts
    proxy.cut_within_bytes = _CUT_WITHIN_BYTES
    async with anyio.create_task_group() as tasks:

        async def cut() -> None:
            while True:
                proxy.cut()
                await asyncio.sleep(_CUT_EVERY)

        tasks.start_soon(cut)
        await trial.add_tenants(2 * scale.tenants)
        tasks.cancel_scope.cancel()
    proxy.cut_within_bytes = None
    proxy.cut()
    seen.repeats = proxy.cuts - before
    seen.facts.append(f"{seen.repeats} cuts, {replica.restarts} restarts")


async def _storm(answer: Answer, lasting: bool, trial: Trial, scale: Scale, seen: Seen) -> None:
    """Answer all requests of the operator with an error for a while; ``lasting``: longer than the leader may wait."""
    (replica,) = trial.running
    proxy = replica.proxy
    former = await trial.leader()
    restarts_before = replica.restarts
    answered_before = proxy.answered
    cuts_before = proxy.cuts
    duration = _LONG_STORM if lasting else scale.storm_seconds
    async with anyio.create_task_group() as tasks:

        async def storm() -> None:
            proxy.answer = answer
            proxy.cut()
            await asyncio.sleep(duration)
            proxy.answer = None

        tasks.start_soon(storm)
        tasks.start_soon(trial.add_tenants, 2 * scale.tenants)
    rate = (proxy.answered - answered_before) / duration
    restarts = replica.restarts - restarts_before
    seen.facts.append(f"{rate:.0f} requests/s during {duration:g} s, {restarts} restarts")
    seen.expect(rate < _MAX_RATE, f"{rate:.0f} requests/s during the storm")
    if not lasting:
        seen.expect(restarts == 0, f"{restarts} restarts")
        seen.expect(await trial.leader() == former, "the leader changed")
    seen.repeats = proxy.cuts - cuts_before


def _log_to_full_disk(trial: Trial) -> None:
    trial.three.log = Path("/dev/full")


async def _fill_disk(trial: Trial, scale: Scale, seen: Seen) -> None:
    """Hand over to a replica whose log is on a full disk."""
    (old,) = trial.running
    former = await trial.leader()
    trial.start(trial.three)
    trial.stop(old, graceful=True)
    await _new_leader(trial, former)
    await trial.add_tenants(2 * scale.tenants)
    restarts = trial.three.restarts
    seen.facts.append(f"{restarts} restarts")
    seen.expect(restarts == 0, f"{restarts} restarts")


async def _stop_webhooks(trial: Trial, scale: Scale, seen: Seen) -> None:
    """Run no replica for a while, as in an update that replaces the only one; then another one starts."""
    (old,) = trial.running
    await trial.add_tenants(scale.tenants)
    await trial.complete(60.0)
    former = await trial.leader()
    trial.stop(old, graceful=False)
    refused = 0
    namespace, *objects = tenant_objects("refused")
    await trial.env.create(namespace)
    for obj in objects:
        try:
            await trial.env.create(obj)
        except APIError as error:
            refused += 1
            seen.expect("failed calling webhook" in str(error), str(error))
    seen.facts.append(f"{refused} of {len(objects)} objects refused")
    seen.expect(refused == len(objects), f"only {refused} of {len(objects)} objects were refused")
    await trial.delete_children(trial.tenants[1])
    trial.start(trial.two)
    await _new_leader(trial, former)
    await trial.add_tenants(scale.tenants)


FAULTS: Final = (
    Fault(
        "operator killed",
        "the next process continues when the Lease of 15 s has expired",
        30.0,
        _kill_operator,
    ),
    Fault(
        "leader killed",
        "the other replica leads within 20 s; the former one writes nothing more",
        30.0,
        partial(_hand_over, False),
    ),
    Fault(
        "leader stopped",
        "the Lease is released: the other replica leads within 5 s",
        10.0,
        partial(_hand_over, True),
    ),
    Fault(
        "kube-apiserver killed",
        "all work is complete 30 s after it is ready again",
        30.0,
        partial(_kill_programs, ("kube-apiserver",)),
        needs_programs=True,
    ),
    Fault(
        "etcd killed",
        "all work is complete 30 s after kube-apiserver is ready again",
        30.0,
        partial(_kill_programs, ("etcd",)),
        needs_programs=True,
    ),
    Fault(
        "etcd and kube-apiserver killed",
        "all work is complete 30 s after kube-apiserver is ready again",
        30.0,
        partial(_kill_programs, ("kube-apiserver", "etcd")),
        needs_programs=True,
    ),
    Fault(
        "etcd restored",
        "the running operator notices the older state: objects with the names of lost ones get everything again",
        60.0,
        _restore_etcd,
        election=_PATIENT,
    ),
    Fault(
        "clock stepped",
        "the leader stays; nothing is written because of the date",
        30.0,
        _step_clock,
        prepare=_use_wall_clock,
    ),
    Fault(
        "watches cut",
        "no event is missed, no half object is used",
        30.0,
        _cut_streams,
    ),
    Fault(
        "storm of 429",
        "Retry-After is respected; the leader stays",
        30.0,
        partial(_storm, Answer(429, "TooManyRequests", 1), False),
    ),
    Fault(
        "storm of 503",
        "requests are repeated with growing pauses; the leader stays",
        30.0,
        partial(_storm, Answer(503, "ServiceUnavailable"), False),
    ),
    Fault(
        "503 for 20 s",
        "the leader stops writing after 10 s, ends, and starts again",
        45.0,
        partial(_storm, Answer(503, "ServiceUnavailable"), True),
    ),
    Fault(
        "disk full for logs",
        "lines of the log are lost, nothing else",
        30.0,
        _fill_disk,
        prepare=_log_to_full_disk,
    ),
    Fault(
        "webhooks down",
        "objects are refused, not admitted unvalidated; what exists stays",
        30.0,
        _stop_webhooks,
    ),
)


def rolling_update(executable: Path, version: str) -> Fault:
    """Return the fault of an update from the version of ``executable`` to this one, and back."""

    def prepare(trial: Trial) -> None:
        for replica in (trial.one, trial.three):
            replica.executable = executable

    return Fault(
        "two versions",
        f"in an update from {version} and back, one replica writes at a time, and no object is rewritten twice",
        30.0,
        _update_and_roll_back,
        prepare=prepare,
        needs_programs=True,
    )


async def _update_and_roll_back(trial: Trial, scale: Scale, seen: Seen) -> None:
    await trial.add_tenants(scale.tenants)
    await _replace(trial, trial.one, trial.two, scale, seen)
    await _replace(trial, trial.two, trial.three, scale, seen)
    order = writers(trial.tenant_writes())
    expected = [trial.one.user, trial.two.user, trial.three.user]
    seen.expect(order == expected, f"replicas wrote in turns: {order}")


async def _replace(trial: Trial, old: Replica, new: Replica, scale: Scale, seen: Seen) -> None:
    """Start ``new`` alongside ``old``, wait until both are quiet, and stop ``old``."""
    former = await trial.leader()
    trial.start(new)
    await new.ready()
    await trial.quiet(scale.quiet_seconds, 60.0)
    before = len(trial.tenant_writes())
    trial.stop(old, graceful=True)
    await _new_leader(trial, former)
    await trial.quiet(scale.quiet_seconds, 60.0)
    rewritten = len(trial.tenant_writes()) - before
    seen.facts.append(f"{new.name} rewrote {rewritten}")
    await trial.add_tenants(scale.tenants)
    await trial.complete(60.0)
