"""Tests of the log of unexpected exceptions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from envtest.apimachinery.failure_log import log_failure

TOKEN = "never-logged"


@pytest.fixture
def default_log() -> Iterator[None]:
    """Use structlog as a program that does not configure it."""
    config = structlog.get_config()
    structlog.reset_defaults()
    yield None
    structlog.configure(**config)


def handle(token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    raise ValueError(f"{len(headers)} headers")


@pytest.mark.usefixtures("default_log")
def test_traceback_contains_functions_and_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        handle(TOKEN)
    except ValueError:
        log_failure("Request failed", path="/api")
    output = capsys.readouterr().out
    assert "Request failed" in output
    assert "/api" in output
    assert "in handle" in output
    assert "ValueError: 1 headers" in output
    assert TOKEN not in output
