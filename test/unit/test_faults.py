"""The fault campaign: what counts as written twice, and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from test.faults.__main__ import main
from test.faults.writes import (
    AuditReader,
    Write,
    created_twice,
    expected_writes,
    repeated,
    writers,
)


def write(resource: str, namespace: str, name: str, code: int = 200, user: str = "one") -> Write:
    return Write(user, "patch", resource, namespace, name, code)


def test_object_that_is_created_twice_is_found_unless_a_user_deleted_it() -> None:
    writes = [write("jobs", "a", "x", 201), write("jobs", "b", "x", 201)]
    assert created_twice(writes) == []
    again = [*writes, write("jobs", "a", "x", 201)]
    assert created_twice(again) == ["jobs a/x"]
    assert created_twice(again, ["jobs a/x"]) == []


def test_repeated_writes_are_those_beyond_an_undisturbed_tenant() -> None:
    undisturbed = [
        write("jobs", "a", "x", 201),
        write("jobs", "a", "x"),
        write("pods", "a", "x-0-abcde"),
        write("jobs/status", "a", "x"),
    ]
    expected = expected_writes(undisturbed, "a")
    assert expected == {("jobs", "x"): 2, ("pods", "x-0"): 1}
    same = [
        write("jobs", "b", "x", 201),
        write("jobs", "b", "x"),
        write("pods", "b", "x-0-fghij"),
        *[write("jobs/status", "b", "x")] * 3,
    ]
    assert repeated(same, expected) == {}
    more = [*same, write("jobs", "b", "x"), write("secrets", "b", "unexpected", 201)]
    assert repeated(more, expected) == {"jobs b/x": 1, "secrets b/unexpected": 1}
    assert repeated(more, expected, ["jobs b/x"]) == {"secrets b/unexpected": 1}


def test_either_flux_job_of_a_tenant_can_run() -> None:
    expected = expected_writes([write("secrets", "a", "first-curve", 201)], "a")
    second = write("secrets", "b", "second-curve", 201)
    assert repeated([second], expected) == {}
    assert repeated([second, second], expected) == {"secrets b/second-curve": 1}


def test_replicas_that_write_in_turns_are_seen() -> None:
    users = ["one", "one", "two", "one"]
    assert writers([write("jobs", "a", "x", user=user) for user in users]) == ["one", "two", "one"]


def audit_event(user: str, verb: str, resource: str, code: int = 200) -> dict[str, Any]:
    return {
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, "namespace": "a", "name": "x"},
        "responseStatus": {"code": code},
    }


def test_audit_log_is_read_as_it_grows_and_only_accepted_writes_of_the_operator_count(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.log"
    events = [
        audit_event("one", "create", "jobs", 201),
        audit_event("one", "create", "jobs", 409),
        audit_event("one", "get", "jobs"),
        audit_event("one", "update", "leases"),
        audit_event("user", "patch", "jobs"),
    ]
    lines = [orjson.dumps(event) for event in events]
    file.write_bytes(b"\n".join(lines) + b"\n")
    reader = AuditReader(file, ["one", "two"])
    (first,) = reader.writes()
    assert first == Write("one", "create", "jobs", "a", "x", 201)
    line = orjson.dumps(audit_event("two", "delete", "jobs"))
    with file.open("ab") as log:
        log.write(line[:20])
        log.flush()
        assert reader.writes() == [first]
        log.write(line[20:] + b"\n")
    assert [found.verb for found in reader.writes()] == ["create", "delete"]
    reader.forget(["a"])
    assert reader.writes() == []


@pytest.mark.parametrize(
    ("assets", "arguments", "message"),
    [
        ("", [], "Error: set KUBEBUILDER_ASSETS to the folder of etcd, "),
        ("/programs", ["earthquake"], "Error: 'earthquake': no such fault; available: "),
        ("/programs", ["--previous", "no-such-tag"], "Error: 'no-such-tag': no such commit"),
    ],
)
def test_wrong_call_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, assets: str, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", assets)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.output.startswith(message)
    assert len(result.output.splitlines()) == 1
