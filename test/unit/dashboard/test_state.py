"""What a page shows of objects: rows, waiting orders, phases, and their bounds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP
from cfo.api.reading import milliseconds
from cfo.dashboard import state as state_module
from cfo.dashboard.feed import Stream, StreamDropped
from cfo.dashboard.state import MAX_TRACKED, History, PageState, row_of
from cfo.summaries.changes import ChangeType, SummaryChange
from cfo.summaries.kind_view import summarize
from cfo.summaries.summary import Level, Problem, Summary, SummaryCondition
from test.support.dashboards import job, samples, summary
from test.support.summaries import VIEWS

NOW = milliseconds("2026-01-01T01:00:00Z")


def added(*summaries: Summary) -> list[SummaryChange]:
    return [SummaryChange(ChangeType.ADDED, each) for each in summaries]


def test_row_has_the_fields_of_its_kind() -> None:
    assert row_of(summary(row={"expires": 7}))["expires"] == 7


def test_row_of_a_fluxsetup_has_its_quotas() -> None:
    status = {"usedResources": 5, "admittedWorkloads": 3}
    setup = {"metadata": {"name": "x"}, "spec": {"max-size": 8, "max-jobs": 4}, "status": status}
    assert summarize(VIEWS[FLUX_SETUP], setup).row["quotas"] == [
        ("Pods", 5, 8, "5", "8"),
        ("Jobs", 3, 4, "3", "4"),
    ]
    assert summarize(VIEWS[FLUX_SETUP], {"metadata": {"name": "x"}}).row["quotas"] == [
        ("Pods", 0, 0, "0", "0")
    ]


def test_waiting_jobs_are_in_the_order_of_their_positions() -> None:
    setup = summary(FLUX_SETUP, "batch", namespace="team", row={"quotas": []})
    state = PageState(VIEWS)
    created = "2026-01-01T00:00:00Z"
    changes = added(
        setup,
        job(0, "team", "b", 2, created),
        job(0, "team", "a", 1, created),
        job(0, "team", "run", 0, created),
    )
    message = state.apply(changes, NOW)
    assert message["orders"] == {setup.uid: [(NOW, ("a", "b"))]}
    assert "orders" not in state.apply(added(setup), NOW + 1)
    message = state.apply(
        [SummaryChange(ChangeType.REMOVED, job(0, "team", "a", 1, created))], NOW + 2
    )
    assert message["orders"] == {setup.uid: [(NOW + 2, ("b",))]}
    assert state.snapshot()["orders"] == {setup.uid: [(NOW, ("a", "b")), (NOW + 2, ("b",))]}


def test_past_phases_are_read_from_conditions() -> None:
    wrapper = summary(
        APPWRAPPER,
        created="2026-01-01T00:00:00Z",
        state="Succeeded",
        conditions=(
            SummaryCondition("QuotaReserved", "True", "", "", "2026-01-01T00:01:00Z"),
            SummaryCondition("PodsReady", "True", "", "", "2026-01-01T00:02:00Z"),
            SummaryCondition("ResourcesDeployed", "False", "", "", "2026-01-01T00:09:00Z"),
        ),
    )
    minute, start = 60_000, milliseconds("2026-01-01T00:00:00Z")
    assert VIEWS[APPWRAPPER].past_phases(wrapper) == [
        (start, "Suspended", "waiting"),
        (start + minute, "Resuming", "progressing"),
        (start + 2 * minute, "Running", "ok"),
        (start + 9 * minute, "Succeeded", "ok"),
    ]


@pytest.mark.parametrize("state", ["Resetting", "Resuming"])
def test_past_phases_of_a_retried_appwrapper_contain_its_reset(state: str) -> None:
    resumed = ("True", "Resuming", "09") if state == "Resuming" else ("False", "Resetting", "05")
    wrapper = summary(
        APPWRAPPER,
        created="2026-01-01T00:00:00Z",
        state=state,
        level=Level.WARNING,
        conditions=(
            SummaryCondition("QuotaReserved", "True", "Resuming", "", "2026-01-01T00:01:00Z"),
            SummaryCondition(
                "ResourcesDeployed", *resumed[:2], "", f"2026-01-01T00:{resumed[2]}:00Z"
            ),
            SummaryCondition("PodsReady", "False", "Resetting", "", "2026-01-01T00:02:00Z"),
            SummaryCondition("Unhealthy", "True", "FailedComponent", "", "2026-01-01T00:02:00Z"),
        ),
    )
    minute, start = 60_000, milliseconds("2026-01-01T00:00:00Z")
    again = [(start + 9 * minute, "Resuming", "progressing")] if state == "Resuming" else []
    assert VIEWS[APPWRAPPER].past_phases(wrapper) == [
        (start, "Suspended", "waiting"),
        (start + minute, "Resuming", "progressing"),
        (start + 2 * minute, "Resetting", "warning"),
        *again,
    ]


def test_legend_of_the_timeline_has_the_colour_of_each_level() -> None:
    script = (Path(state_module.__file__).parent / "assets" / "sections.js").read_text()
    (levels,) = [line for line in script.splitlines() if line.startswith("const LEVELS")]
    assert all(f'"{level.value}"' in levels for level in Level)


def test_job_without_a_position_waits_behind_the_others() -> None:
    state = PageState(VIEWS)
    created = "2026-01-01T00:00:00Z"
    too_large = replace(
        job(0, "team", "too-large", 1, created), row={"position": 0, "queue": "team/batch"}
    )
    changes = added(
        summary(FLUX_SETUP, "batch", namespace="team", row={"quotas": []}),
        too_large,
        job(0, "team", "next", 1, created),
    )
    ((_, (order,)),) = state.apply(changes, NOW)["orders"].items()
    assert order == (NOW, ("next", "too-large"))


def test_phase_changes_are_recorded_once() -> None:
    state = PageState(VIEWS)
    before = summary(APPWRAPPER, state="Suspended", level=Level.PROGRESSING)
    assert len(state.apply(added(before), NOW)["phases"][before.uid]) == 1
    running = summary(APPWRAPPER, state="Running")
    assert state.apply([SummaryChange(ChangeType.CHANGED, running)], NOW + 5)["phases"] == {
        before.uid: [(NOW + 5, "Running", "ok")]
    }
    assert state.apply([SummaryChange(ChangeType.CHANGED, running)], NOW + 6) == {}


def test_history_is_bounded() -> None:
    history = History()
    for index in range(MAX_TRACKED + 5):
        history.record_phase(f"uid-{index}", NOW, "Running", "ok", lambda: ())
    for index in range(100):
        history.record_phase("uid-900", NOW + index, f"state-{index}", "ok", lambda: ())
    for index in range(500):
        history.record_order("queue", NOW + index, [str(index + each) for each in range(50)])
    found = history.snapshot()
    assert len(found["phases"]) == MAX_TRACKED
    assert len(found["phases"]["uid-900"]) == 32
    (samples_of_queue,) = found["orders"].values()
    assert len(samples_of_queue) == 120
    assert len(samples_of_queue[0][1]) == 10


def test_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MAX_ROWS", 3)
    state = PageState(VIEWS)
    state.apply(added(*(summary(name=f"cluster-{index}") for index in range(5))), NOW)
    assert len(state.snapshot()["rows"]) == 3
    assert state.is_truncated
    removed = SummaryChange(ChangeType.REMOVED, summary(name="cluster-4"))
    assert state.apply([removed], NOW) == {}


def test_rows_hold_no_more_memory_than_they_need() -> None:
    state = PageState(VIEWS)
    objects = [summary(name=f"cluster-{index}") for index in range(100)]
    tracemalloc.start()
    try:
        state.apply(added(*objects), NOW)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 100 * 2_000


def test_state_forgets_deleted_objects() -> None:
    state, objects = PageState(VIEWS), samples(20)
    state.apply(added(*objects), NOW)
    state.apply([SummaryChange(ChangeType.REMOVED, each) for each in objects], NOW)
    assert not any(known for name, known in state.snapshot().items() if name != "sections")


def with_problem(name: str, message: str, owner: Summary | None = None, **fields: Any) -> Summary:
    """Return a summary that has one problem, or none if ``message`` is empty."""
    problems = (Problem(message, "act"),) if message else ()
    uid = owner.uid if owner is not None else ""
    return summary(name=name, level=Level.WARNING, problems=problems, owner=uid, **fields)


def shown_rows(message: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the rows in a message, each with its problems and its cause."""
    rows = orjson.loads(orjson.dumps(message.get("rows", [])))
    return {
        row["name"]: [
            *(problem for problem, _ in row["problems"]),
            *(value for name, value in row["facts"] if name == "cause"),
        ]
        for row in rows
    }


def test_row_refers_to_the_problem_of_its_owner_as_long_as_that_has_it() -> None:
    state = PageState(VIEWS)
    job = with_problem("job", "no quota", gvk=FLUX_JOB)
    owned = with_problem("owned", "no quota", job)
    well = with_problem("well", "", job)
    see = ["see FluxJob default/job"]

    def change(*changed: Summary) -> dict[str, list[str]]:
        changes = [SummaryChange(ChangeType.CHANGED, each) for each in changed]
        return shown_rows(state.apply(changes, NOW))

    assert change(owned, well) == {"owned": ["no quota"], "well": []}
    assert change(job) == {"job": ["no quota"], "owned": see}
    assert shown_rows(state.snapshot())["owned"] == see
    details = state.details(owned.uid)
    assert details is not None
    assert details["Problems that its owner has as well"] == [("no quota", "act")]
    # only the rows that depend on the change are sent
    assert change(replace(job, state="Other")) == {"job": ["no quota"]}
    assert change(replace(owned, state="Other")) == {"owned": see}
    assert change(replace(owned, state="Other")) == {}
    solved = with_problem("job", "", gvk=FLUX_JOB)
    assert change(solved) == {"job": [], "owned": ["no quota"]}
    assert change(job, owned) == {"job": ["no quota"], "owned": see}
    removed = state.apply([SummaryChange(ChangeType.REMOVED, job)], NOW)
    assert shown_rows(removed) == {"owned": ["no quota"]}
    state.apply([SummaryChange(ChangeType.REMOVED, each) for each in (owned, well)], NOW)
    assert state._owned == {}


def test_change_of_an_owner_encodes_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MAX_OWNED", 3)
    encoded: list[Summary] = []
    row_of = state_module.row_of
    monkeypatch.setattr(state_module, "row_of", lambda each: encoded.append(each) or row_of(each))
    state = PageState(VIEWS)
    job = with_problem("job", "no quota", gvk=FLUX_JOB)
    owned = [with_problem(f"owned-{index}", "no quota", job) for index in range(9)]
    state.apply(added(job, *owned), NOW)
    assert len(encoded) == 10
    solved = with_problem("job", "", gvk=FLUX_JOB)
    assert len(state.apply([SummaryChange(ChangeType.CHANGED, solved)], NOW)["rows"]) == 4
    assert len(encoded) == 14
    state.apply([SummaryChange(ChangeType.CHANGED, replace(solved, state="Other"))], NOW)
    assert len(encoded) == 15


async def test_stream_that_is_too_far_behind_is_dropped() -> None:
    by_number, by_size = Stream(lambda: False), Stream(lambda: False)
    for _ in range(121):
        by_number.send(b"x")
    for _ in range(5):
        by_size.send(b"x" * (1 << 20))
    for stream in (by_number, by_size):
        with pytest.raises(StreamDropped):
            await stream.receive()
        stream.send(b"later")
        with pytest.raises(StreamDropped):
            stream.restart()


def test_sections_are_those_of_the_shown_kinds_in_their_order() -> None:
    found = [section.id for section in PageState(VIEWS).snapshot()["sections"]]
    assert found == [
        "rayclusters",
        "rayjobs",
        "queues",
        "miniclusters",
        "appwrappers",
        "inferencestacks",
    ]
    shown = {gvk: view for gvk, view in VIEWS.items() if gvk in (APPWRAPPER, FLUX_SETUP)}
    assert [section.id for section in PageState(shown).snapshot()["sections"]] == [
        "queues",
        "appwrappers",
    ]
