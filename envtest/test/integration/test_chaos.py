"""Chaos: faults find what is wrong with careless operators, and nothing wrong with a careful one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.chaos import (
    KINDS,
    Connection,
    OperatorExited,
    Report,
    Scenario,
    ScenarioError,
    StartError,
    Timing,
    exploration,
    explore,
    run,
)
from envtest.chaos.steps import Step
from envtest.command import command
from envtest.planes.embedded import EmbeddedServer
from test.support.operators import (
    CONFIG_MAPS,
    Reconcile,
    count_reconciles,
    forget_child,
    generate_child,
    keep_child,
    operator,
    parent,
)

FAST = Timing(quiet=0.1, timeout=1.5, rest=0.1)
PATIENT = Timing(quiet=0.2, timeout=60.0, rest=0.1)
"""For operators without a defect, which no step waits long for."""
CARELESS = Path(__file__).parents[1] / "support" / "careless_operator.py"
DELETE = {"delete": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}}
CREATE_AND_CHANGE = [{"apply": parent(color="blue")}, {"apply": parent(color="red")}]


async def explored(reconcile: Reconcile, *steps: dict[str, Any], **options: Any) -> Report:
    return await explore(
        operator(reconcile), steps, **{"timing": FAST, "ready": "0.05", "jobs": 20, **options}
    )


def found(report: Report) -> list[tuple[str, str]]:
    return sorted(
        (each.problem.kind, each.problem.subject.rpartition(" ")[2][:2]) for each in report.findings
    )


async def test_careful_operator_converges_after_each_fault() -> None:
    report = await explored(keep_child, *CREATE_AND_CHANGE, DELETE, timing=PATIENT)
    assert report.passed, report.text()
    assert report.run == report.planned
    assert not report.not_reached
    assert report.writes == 2
    assert "No findings" in report.text()


async def test_all_kinds_of_faults_are_tried() -> None:
    report = await explored(keep_child, *CREATE_AND_CHANGE, budget=1.0, jobs=1)
    assert report.planned >= len(KINDS)
    assert report.run < report.planned


async def test_faults_that_the_budget_left_out_do_not_pass() -> None:
    report = await explored(keep_child, *CREATE_AND_CHANGE, budget=0.0)
    assert (report.run, report.findings) == (0, [])
    assert len(report.not_run) == report.planned > 1
    assert not report.passed
    with pytest.raises(AssertionError, match=f"Budget used up, {report.planned} faults not run$"):
        report.assert_passed()
    assert report.json()["faults"]["notRun"] == [point.id for point in report.not_run]
    assert report.interrupted == []


async def test_fault_that_the_budget_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget begins with the faults, because the clock of the exploration stands; the first one never ends."""
    run = exploration.run_scenario

    async def run_or_wait(session: Any, scenario: Any, timing: Any, point: Any, *rest: Any) -> Any:
        if point is None:
            return await run(session, scenario, timing, point, *rest)
        return await asyncio.Event().wait()

    monkeypatch.setattr(exploration, "run_scenario", run_or_wait)
    monkeypatch.setattr(exploration, "time", SimpleNamespace(monotonic=lambda: 0.0))
    report = await explored(keep_child, *CREATE_AND_CHANGE, budget=0.1, jobs=1)
    assert report.interrupted == report.not_run[:1]
    assert report.gaps[0].startswith(f"Budget used up during {report.not_run[0].id}, ")


async def test_generated_name_that_is_lost_is_a_duplicate() -> None:
    report = await explored(generate_child, {"apply": parent()}, kinds=["crash", "reset"])
    assert found(report) == [("duplicate", "de")]
    (finding,) = report.findings
    assert {point.id for point in finding.points} >= {
        "reset@1.1.create.configmaps:default/",
        "crash@1.1.create.configmaps:default/",
    }
    assert finding.repeated
    assert finding.problem.subject.startswith("configmaps default/a-")


async def test_single_fault_is_repeated_by_its_id() -> None:
    report = await explored(
        generate_child, {"apply": parent()}, only=["timeout@1.1.create.configmaps:default/"]
    )
    assert (report.run, [each.problem.kind for each in report.findings]) == (1, ["duplicate"])
    text = report.text()
    assert "Fault: timeout@1.1.create.configmaps:default/" in text
    assert text.count("201 create configmaps default") == 2


async def test_fault_that_is_not_reached_is_reported() -> None:
    report = await explored(
        keep_child, {"apply": parent()}, only=["crash@1.9.create.secrets:default/"]
    )
    assert [point.id for point in report.not_reached] == ["crash@1.9.create.secrets:default/"]
    assert (report.planned, report.run, report.findings) == (1, 0, [])
    assert not report.passed
    with pytest.raises(AssertionError, match=r"Not passed: 1 fault of --only not reached$"):
        report.assert_passed()


async def test_problem_without_its_fault_is_no_finding() -> None:
    starts = 0

    async def start_later(connection: Connection) -> None:
        """Write only in the runs without faults, as if all later starts took longer than ``ready``."""
        nonlocal starts
        starts += 1
        if starts <= 2:
            async with APIClient(connection) as api:
                await api.post(CONFIG_MAPS, {"metadata": {"name": "late"}})
        await asyncio.sleep(3600)

    report = await explore(start_later, timing=FAST, ready="0.5", kinds=["crash"])
    (fault,) = report.not_reached
    assert (report.planned, report.run, report.findings) == (1, 0, [])
    assert report.failed_without_fault == [fault]
    assert not report.passed
    (explanation, _) = report.gaps
    assert explanation == (
        f"Not passed: problems although the fault was not reached: {fault.id}: the operator may be slower than"
        " --ready or --quiet, use more seconds"
    )
    assert report.json()["faults"]["failedWithoutFault"] == [fault.id]


async def test_operator_that_writes_nothing_does_not_pass() -> None:
    async def read(api: APIClient, owner: dict[str, Any]) -> None:
        await api.get(CONFIG_MAPS)

    report = await explored(read, {"apply": parent()}, kinds=["crash", "timeout"])
    assert (report.planned, report.run, report.findings) == (0, 0, [])
    assert not report.passed
    assert report.text().endswith("No findings\nNot passed: no fault was reached")
    unfaulted = await explored(read, {"apply": parent()}, kinds=[])
    assert unfaulted.passed


async def test_late_writes_hint_at_steps_that_ended_too_early() -> None:
    async def write_late(connection: Connection) -> None:
        async with APIClient(connection) as api:
            async with api.watch(CONFIG_MAPS, {"fieldSelector": "metadata.name=b"}) as events:
                await events.event(timeout=60)
            await asyncio.sleep(0.4)
            await api.post(CONFIG_MAPS, {"metadata": {"name": "late"}})
            await asyncio.sleep(3600)

    report = await explore(
        write_late,
        [{"apply": parent("a")}, {"apply": parent("b")}],
        timing=Timing(quiet=0.1, timeout=60.0, rest=5.0),
        ready="0.05",
        kinds=[],
    )
    assert [each.problem.kind for each in report.findings] == ["writes at rest"]
    hint = "No writes before, in steps 1, 2: the operator may be slower than --quiet or --ready"
    assert hint in report.text()


async def test_child_that_is_forgotten_is_missing() -> None:
    report = await explored(forget_child, {"apply": parent()}, kinds=["crash", "error"])
    assert [each.problem.kind for each in report.findings] == ["missing"]
    assert report.findings[0].problem.subject == "configmaps default/a-child"
    assert {point.kind for point in report.findings[0].points} == {"crash"}


async def test_hot_loop_is_found_without_faults() -> None:
    report = await explored(count_reconciles, {"apply": parent()})
    assert {each.problem.kind for each in report.findings} == {"hot loop", "writes at rest"}
    assert report.run == 0
    assert all(
        each.problem.subject in ("operator", "patch configmaps default/a")
        for each in report.findings
    )


async def test_writes_without_a_change_at_rest_are_found() -> None:
    async def beat(connection: Connection) -> None:
        async with APIClient(connection) as api:
            await api.post(CONFIG_MAPS, {"metadata": {"name": "beat"}})
            while True:
                await api.merge(f"{CONFIG_MAPS}/beat", {"data": {"a": "b"}})
                await asyncio.sleep(0.3)

    report = await explore(beat, timing=Timing(0.1, 1.0, 0.4), ready="0.05")
    assert [each.problem.kind for each in report.findings] == ["writes at rest"]
    assert "without a change" in report.findings[0].problem.lines[0]
    ignored = await explore(beat, timing=FAST, ready="0.05", ignore=["configmaps"], kinds=[])
    assert ignored.passed


async def test_cache_that_is_held_back_leads_to_duplicates() -> None:
    """The operator trusts its cache of children, which does not have the child yet when the parent changes again."""

    async def trust_cache(connection: Connection) -> None:
        children: set[str] = set()

        async def follow(api: APIClient) -> None:
            async with api.watch("/api/v1/namespaces/default/secrets") as events:
                while True:
                    event = await events.event()
                    children.add(event["object"]["metadata"]["generateName"])

        async def reconcile(api: APIClient, owner: dict[str, Any]) -> None:
            prefix = f"{owner['metadata']['name']}-"
            if prefix not in children:
                await api.post(
                    "/api/v1/namespaces/default/secrets", {"metadata": {"generateName": prefix}}
                )

        async with APIClient(connection) as api:
            task = asyncio.create_task(follow(api))
            try:
                await operator(reconcile)(connection)
            finally:
                task.cancel()

    steps = [{"apply": [parent("a"), parent("b")]}, {"apply": [parent("c"), parent("d")]}]
    change = {
        "patch": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "c",
            "patch": {"data": {"x": "y"}},
        }
    }
    steps[1]["apply"].append(parent("c", x="z"))
    report = await explore(
        trust_cache, [*steps, change], timing=FAST, ready="0.05", only=["stale@2.secrets"]
    )
    assert [each.problem.kind for each in report.findings] == ["duplicate"]


async def test_restart_with_an_old_cache_leads_to_duplicates() -> None:
    """The operator believes a list from the cache of a lagging API server."""

    async def trust_list(connection: Connection) -> None:
        async with APIClient(connection) as api:
            listed = (
                await api.get(CONFIG_MAPS, {"resourceVersion": "0", "labelSelector": "role=child"})
            ).body
            known = {item["data"]["of"] for item in listed["items"]}

            async def reconcile(api: APIClient, owner: dict[str, Any]) -> None:
                name = owner["metadata"]["name"]
                if name not in known:
                    known.add(name)
                    labels = {"role": "child"}
                    await api.post(
                        CONFIG_MAPS,
                        {
                            "metadata": {"generateName": "x-", "labels": labels},
                            "data": {"of": name},
                        },
                    )

            await operator(reconcile)(connection)

    report = await explore(
        trust_list, [{"apply": parent()}], timing=FAST, ready="", only=["rewind@1"]
    )
    assert [each.problem.kind for each in report.findings] == ["duplicate"]


async def test_operator_that_misses_a_deletion_leaves_an_orphan() -> None:
    async def mirror(connection: Connection) -> None:
        """Copy each parent to a Secret, and delete that only when a watch says so."""
        secrets = "/api/v1/namespaces/default/secrets"
        async with APIClient(connection) as api:
            while True:
                query = {
                    "labelSelector": "role=parent",
                    "sendInitialEvents": "true",
                    "allowWatchBookmarks": "true",
                }
                async with api.watch(
                    CONFIG_MAPS, {**query, "resourceVersionMatch": "NotOlderThan"}
                ) as events:
                    try:
                        while True:
                            event = await events.event()
                            name = event["object"]["metadata"].get("name", "")
                            if event["type"] == "ADDED":
                                await api.post(secrets, {"metadata": {"name": name}})
                            elif event["type"] == "DELETED":
                                await api.delete(f"{secrets}/{name}")
                    except (AssertionError, KeyError, aiohttp.ClientError):
                        await asyncio.sleep(0.05)

    steps = [{"apply": parent()}, DELETE, {"apply": parent("b")}]
    report = await explore(mirror, steps, timing=FAST, ready="0.05", kinds=["unobserved"], jobs=4)
    assert ("orphan", "secrets default/a") in {
        (each.problem.kind, each.problem.subject) for each in report.findings
    }


async def test_prepared_plane_is_not_changed() -> None:
    async with ControlPlane.embedded() as plane, APIClient(plane) as api:
        await api.post(CONFIG_MAPS, parent("prepared"))
        report = await explored(
            keep_child,
            {"apply": parent()},
            plane=plane,
            kinds=["crash"],
            timing=Timing(1.0, 60.0, 0.1),
        )
        assert report.passed, report.text()
        assert report.writes == 2  # also the child of the prepared parent
        listed = (await api.get(CONFIG_MAPS)).body["items"]
        assert [
            item["metadata"]["name"]
            for item in listed
            if item["metadata"]["name"] != "kube-root-ca.crt"
        ] == ["prepared"]


async def test_operator_that_does_not_run_is_an_error() -> None:
    async def fail(connection: Connection) -> None:
        raise RuntimeError("no permission")

    with pytest.raises(OperatorExited, match=r"ended 6 times: RuntimeError: no permission$"):
        await explore(fail, timing=PATIENT)
    with pytest.raises(OperatorExited, match=r"^the operator ended 6 times: exit code 1$"):
        await explore(["false"], timing=PATIENT)
    with pytest.raises(OperatorExited) as exited:
        await explore(["sh", "-c", "echo Traceback; exit 3"], timing=PATIENT)
    assert str(exited.value) == "the operator ended 6 times: exit code 3\nTraceback"
    with pytest.raises(StartError, match="no-such-program: No such file"):
        await explore(["no-such-program"], timing=FAST)
    message = (
        r"was not ready after 0\.1 s: it sent no request, .*; --ready \(ready in Python\) is a URL"
    )
    with pytest.raises(OperatorExited, match=message):
        await explore(["sleep", "60"], timing=Timing(startup=0.1))
    url = "http://127.0.0.1:1/readyz"
    with pytest.raises(OperatorExited, match=f"{url} did not respond with a status below 400"):
        await explore(["sleep", "60"], ready=url, timing=Timing(startup=0.1))


async def test_step_that_is_rejected_is_an_error() -> None:
    bad = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "NO"}}
    with pytest.raises(
        ScenarioError, match=r"step 'apply ConfigMap NO': ConfigMap \"NO\" is invalid"
    ):
        await explored(keep_child, {"apply": bad})


@pytest.mark.parametrize("options", [{"kinds": ["boom"]}, {"only": ["boom@1"]}, {"ready": "soon"}])
async def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        await explored(keep_child, **options)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def assert_ended(pids: Path) -> None:
    deadline = time.monotonic() + 60
    numbers = [int(number) for number in pids.read_text().split()]
    assert numbers
    while any(map(is_running, numbers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_command_reports_findings_as_json_and_leaves_no_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    arguments = [
        "--timeout",
        "1.5",
        "--quiet",
        "0.2",
        "--rest",
        "0.1",
        "--explore",
        "crash",
        "-o",
        "json",
    ]
    program = [sys.executable, str(CARELESS), str(pids)]
    result = CliRunner().invoke(command, ["chaos", *arguments, "--", *program])
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["fault"]["id"]) == (
        "duplicate",
        "crash@0.1.create.configmaps:default/",
    )
    assert finding["command"] == (
        "envtest chaos --timeout 1.5 --quiet 0.2 --rest 0.1 --only crash@0.1.create.configmaps:default/ --seed 0 -- "
        + " ".join(program)
    )
    assert report["faults"]["run"] == 1
    assert_ended(pids)


def test_command_that_runs_no_fault_within_its_budget_exits_with_3(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = [sys.executable, str(CARELESS), str(pids)]
    # the two runs without faults are quiet for a second each, and the budget is over
    arguments = ["--budget", "1", "--quiet", "1", "--rest", "0", "--explore", "crash"]
    result = CliRunner().invoke(command, ["chaos", *arguments, "--", *program])
    assert result.exit_code == 3, result.output
    assert result.output.endswith("No findings\nBudget used up, 1 fault not run\n")


def test_command_that_reaches_no_fault_exits_with_3(tmp_path: Path) -> None:
    program = [sys.executable, str(CARELESS), str(tmp_path / "pids")]
    fault = "crash@9.1.create.pods:x/"
    arguments = ["--quiet", "0.2", "--rest", "0", "--timeout", "5", "--only", fault]
    result = CliRunner().invoke(command, ["chaos", *arguments, "--", *program])
    assert result.exit_code == 3, result.output
    assert f"Not reached: {fault}\n" in result.output
    assert result.output.endswith("No findings\nNot passed: 1 fault of --only not reached\n")


def test_command_that_is_interrupted_leaves_no_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = [sys.executable, str(CARELESS), str(pids)]
    process = subprocess.Popen(
        [sys.executable, "-m", "envtest", "chaos", "--quiet", "30", "--", *program]
    )
    try:
        deadline = time.monotonic() + 120
        while not pids.exists() or not pids.read_text().endswith("\n"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    finally:
        process.kill()
    assert_ended(pids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--explore", "boom"], "kind of fault 'boom': must be one of crash"),
        (["--only", "boom"], "fault 'boom': must be KIND@STEP"),
        (["--ready", "soon"], "must be a URL or a number of seconds"),
    ],
)
def test_command_fails_for_invalid_options(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, ["chaos", *arguments, "--", "true"])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_synchronous_programs() -> None:
    report = run(
        operator(keep_child), [{"apply": parent()}], timing=FAST, ready="0.05", kinds=["crash"]
    )
    report.assert_passed()
    assert os.environ.get("KUBECONFIG") is None or "envtest-chaos" not in os.environ["KUBECONFIG"]


async def test_conflict_comes_with_the_event_of_the_other_client() -> None:
    """An operator that does not repeat a write that conflicts relies on the event of the newer object."""

    async def wait_for_event(api: APIClient, owner: dict[str, Any]) -> None:
        if owner["metadata"].get("annotations") != {"seen": "yes"}:
            await api.merge(
                f"{CONFIG_MAPS}/{owner['metadata']['name']}",
                {"metadata": {"annotations": {"seen": "yes"}}},
            )

    report = await explored(wait_for_event, {"apply": parent()}, kinds=["conflict"])
    report.assert_passed()
    assert (report.run, report.not_reached) == (1, [])


@pytest.mark.parametrize(("failures", "problems"), [(1, []), (1000, ["step failed"])])
async def test_step_that_fails_after_a_fault_is_repeated(
    failures: int, problems: list[str]
) -> None:
    """As a step whose object goes through a webhook of the operator, which has been killed."""

    class RejectedStep(Step):
        __slots__ = ()

        async def run(self, plane: EmbeddedServer) -> None:
            planes.append(plane.url)
            if (
                len(set(planes)) > 2 and planes.count(plane.url) <= failures
            ):  # the first two have no faults
                raise ScenarioError("the webhook does not respond")
            await Step.run(self, plane)

    planes: list[str] = []
    scenario = Scenario([RejectedStep("apply", "apply", (parent(),))])
    report = await explore(
        operator(keep_child), scenario, timing=FAST, ready="0.05", only=["disconnect@1"]
    )
    assert [each.problem.kind for each in report.findings] == problems
