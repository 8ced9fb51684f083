"""How failed writes of owned objects are collected and reported, without an API server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import (
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    InternalError,
    Invalid,
)
from cfo.runtime.client.owned import NameTaken, OwnedWrites
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import Object

OWNER: Object = {
    "apiVersion": "example.com/v1",
    "kind": "Site",
    "metadata": {"name": "s", "uid": "u"},
}


class Writes(OwnedWrites):
    """Records the reports."""

    def __init__(self) -> None:
        super().__init__(cast("Client", None), OWNER)
        self.reports: list[Any] = []

    def report_taken(self, taken: NameTaken, consequence: str) -> None:
        self.reports.append((str(taken), consequence))

    def report_failure(self, message: str, *, is_lasting: bool) -> None:
        self.reports.append((message, is_lasting))

    def report_terminating(self) -> None:
        self.reports.append("terminating")


async def fail(error: Exception) -> None:
    raise error


def status(reason: str = "", message: str = "no") -> dict[str, Any]:
    return {"message": message, "details": {"causes": [{"reason": reason}] if reason else []}}


@pytest.mark.parametrize(
    ("error", "is_lasting"),
    [
        (Invalid(422, status()), True),
        (Forbidden(403, status()), True),
        (BadRequest(400, status()), True),
        (Conflict(409, status("FieldManagerConflict")), True),
        (Conflict(409, status()), False),
        (InternalError(500, status()), False),
    ],
)
async def test_error_is_reported_and_raised_at_the_end(error: APIError, is_lasting: bool) -> None:
    writes = Writes()
    assert await writes.attempt(fail(error), CONFIG_MAP, "a", "deleted") is None
    assert writes.reports == [("ConfigMap a could not be deleted: no", is_lasting)]
    with pytest.raises(type(error)):
        writes.raise_errors()
    await writes.attempt(fail(error), CONFIG_MAP, "b")
    assert writes.reports[1:] == [("ConfigMap b could not be written: no", is_lasting)]
    with pytest.raises(ExceptionGroup) as raised:
        writes.raise_errors()
    assert raised.value.exceptions == (error, error)


async def test_deletion_of_the_namespace_is_not_an_error() -> None:
    writes = Writes()
    await writes.attempt(fail(Forbidden(403, status("NamespaceTerminating"))), CONFIG_MAP, "a")
    assert writes.reports == ["terminating"]
    writes.raise_errors()


async def test_taken_name_is_reported_with_its_consequence() -> None:
    writes = Writes()
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    await writes.attempt(fail(NameTaken(obj, OWNER)), CONFIG_MAP, "a", consequence="no page")
    assert writes.reports == [
        ("ConfigMap a already exists and does not belong to this Site", "no page")
    ]
    writes.raise_errors()
    with pytest.raises(NameTaken):
        await OwnedWrites(writes.client, OWNER).attempt(
            fail(NameTaken(obj, OWNER)), CONFIG_MAP, "a"
        )


async def test_other_exceptions_are_raised_at_once() -> None:
    with pytest.raises(LookupError):
        await Writes().attempt(fail(LookupError()), CONFIG_MAP, "a")


def test_next_reconcile_is_the_earliest_requested() -> None:
    writes = Writes()
    for seconds, expected in ((300.0, 300.0), (5.0, 5.0), (60.0, 5.0)):
        writes.retry(seconds)
        assert writes.retry_after == expected
