"""Text of a cluster becomes printable where it leaves the program: logs, Events, conditions, errors and terminals."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
import structlog

from cfo.console.errors import CommandFailed, InvalidInput, echo, one_line
from cfo.runtime import Conditions, logs
from cfo.runtime.objects.field import Path, forbidden, invalid, required
from cfo.runtime.process.printable import described, printable, printable_lines
from cfo.runtime.webhook.admission import AdmissionResponse
from cfo.runtime.webhook.review import write_review

HOSTILE = "a\x1b]0;title\x07\r\nError: forged\u202e\u2066\u200f\x9b31m\x7fb"
ESCAPED = r"a\x1b]0;title\a\r\nError: forged\u202e\u2066\u200f\u009b31m\x7fb"


def test_text_is_escaped_and_cut() -> None:
    assert printable("plain text, ü") == "plain text, ü"
    assert printable(HOSTILE) == ESCAPED
    assert printable("x" * 10**6, 10) == "x" * 9 + "…"
    assert len(printable("\x1b" * 10**6, 1000)) == 1000
    assert printable_lines("one\n\ttwo\x1b\n") == "one\n\ttwo\\x1b\n"
    assert all(printable(chr(code)).isprintable() for code in range(0x3000))


def test_error_is_described_although_its_text_fails() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert described(KeyError("a")) == "KeyError: 'a'"
    assert described(Broken()) == "Broken: its text cannot be read"


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_log_is_printable(log_format: Literal["console", "json"]) -> None:
    stream = io.StringIO()
    try:
        logs.configure(log_format, "info", stream)
        structlog.get_logger("test").info(
            HOSTILE, name=HOSTILE, names=[HOSTILE], nested={HOSTILE: HOSTILE}
        )
        try:
            int(HOSTILE)
        except ValueError:
            structlog.get_logger("test").exception("Failed")
        logging.getLogger("library").warning("%s", HOSTILE)
    finally:
        structlog.reset_defaults()
        logging.getLogger().handlers.clear()
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 3
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("Error: forged") for line in lines)
    if log_format == "json":
        assert json.loads(lines[0])["nested"] == {HOSTILE: HOSTILE}


def test_errors_of_fields_are_printable() -> None:
    path = Path("spec").key(HOSTILE).child(HOSTILE)
    for error in (
        required(path),
        invalid(path, {HOSTILE: [HOSTILE]}, HOSTILE),
        forbidden(path, HOSTILE),
    ):
        assert str(error).isprintable()
        assert all(value.isprintable() for value in error.cause().values())


def test_messages_of_conditions_and_reviews_are_printable() -> None:
    conditions = Conditions({"metadata": {"generation": 1}}, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert conditions.set("Ready", False, "Failed", HOSTILE)
    assert not conditions.set("Ready", False, "Failed", HOSTILE)
    assert conditions.as_list()[0]["message"] == ESCAPED
    response = AdmissionResponse(allowed=False, message=HOSTILE, warnings=(HOSTILE,))
    review: dict[str, Any] = json.loads(write_review("1", response))["response"]
    assert (review["status"]["message"], review["warnings"]) == (ESCAPED, [ESCAPED])


def test_terminal_shows_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE)
    echo(one_line(ValueError(HOSTILE)))
    CommandFailed(one_line(HOSTILE)).show()
    InvalidInput(one_line(HOSTILE)).show()
    captured = capsys.readouterr()
    for stream, count in ((captured.out, 2), (captured.err, 2)):
        assert len(stream.splitlines()) == count
        assert all(line.isprintable() for line in stream.splitlines())


@pytest.mark.parametrize("blank", "\u115f\u1160\u2800\u3164\uffa0")
def test_characters_that_look_like_spaces_are_escaped(blank: str) -> None:
    assert printable(f"a{blank}b") == f"a\\u{ord(blank):04x}b"
    assert printable_lines(f"a{blank}\nb") == f"a\\u{ord(blank):04x}\nb"
