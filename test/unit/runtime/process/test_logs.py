"""Log lines in the JSON and the console format."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Literal
from unittest import mock

import orjson
import pytest
import structlog

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.controller import cause
from cfo.runtime.controller.cause import Cause, Causes
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.process.logs import configure

KEY = NamespacedName("ns", "a")


def state(value: int) -> Entry:
    """Return a state of the ConfigMap ns/a."""
    obj = {"metadata": {"namespace": "ns", "name": "a"}, "data": {"x": str(value)}}
    return EntryDecoder(CONFIG_MAP).decode(orjson.dumps(obj))


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def json_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_have_the_keys_of_zap_and_the_reconcile_context() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    log = structlog.get_logger("cfo.test")
    with structlog.contextvars.bound_contextvars(
        controller="mirror", namespace="ns", name="a", reconcileID="r"
    ):
        log.info("Created", object={"a": 1}, request=("ns", "a"))
    log.debug("suppressed")
    (line,) = json_lines(stream)
    assert list(line)[:5] == ["level", "ts", "logger", "msg", "controller"]
    assert line["ts"].endswith("Z")
    del line["ts"]
    assert line == {
        "level": "info",
        "logger": "cfo.test",
        "msg": "Created",
        "object": {"a": 1},
        "request": ["ns", "a"],
        "controller": "mirror",
        "namespace": "ns",
        "name": "a",
        "reconcileID": "r",
    }


def test_causes_are_compared_only_for_lines_that_are_written() -> None:
    for log_format in ("json", "console"):
        stream = io.StringIO()
        configure(log_format, "info", stream)  # type: ignore[arg-type]
        log = structlog.get_logger("cfo.test")
        update = Event(EventType.UPDATED, KEY, state(1), state(2))
        causes = Causes.of(Cause.of_event(CONFIG_MAP, update))
        with (
            structlog.contextvars.bound_contextvars(causes=causes),
            mock.patch.object(cause, "changed_fields") as diff,
        ):
            diff.return_value = ("data.x",)
            log.debug("suppressed")
            assert diff.call_count == 0
            log.info("first")
            log.info("second")
            assert diff.call_count == 1
        assert stream.getvalue().count("ConfigMap ns/a updated: data.x") == 2


def test_exception_is_logged_on_one_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream)
    try:
        int("boom")
    except ValueError as error:
        structlog.get_logger("cfo.test").error("failed", exc_info=error)
    (line,) = json_lines(stream)
    assert "ValueError: invalid literal" in line["stacktrace"]
    assert 'int("boom")' in line["stacktrace"]


def test_console_lines_are_readable_without_color_codes() -> None:
    stream = io.StringIO()
    configure("console", "debug", stream)
    structlog.get_logger("cfo.test").debug("Created", ingress="x")
    output = stream.getvalue()
    assert "Created" in output
    assert "ingress=x" in output
    assert "\x1b" not in output


def test_other_libraries_are_logged_from_warning_level() -> None:
    stream = io.StringIO()
    configure("json", "debug", stream)
    logging.getLogger("aiohttp.access").info("GET /")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    (line,) = json_lines(stream)
    assert (line["level"], line["logger"], line["msg"]) == ("warning", "asyncio", "slow callback")


def test_second_configuration_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    log = structlog.get_logger("cfo.test")
    configure("json", "info", first)
    log.info("one")
    configure("json", "error", second)
    log.info("two")
    log.error("three")
    assert [line["msg"] for line in json_lines(first)] == ["one"]
    assert [line["msg"] for line in json_lines(second)] == ["three"]


@pytest.mark.parametrize(("log_format", "level"), [("xml", "info"), ("json", "loud")])
def test_invalid_format_or_level_is_rejected_with_the_allowed_values(
    log_format: Any, level: str
) -> None:
    with pytest.raises(ValueError, match="must be"):
        configure(log_format, level)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Return ``True``."""
        return True


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_no_color_disables_colors_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, no_color: str, colored: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal()
    configure("console", "info", terminal)
    structlog.get_logger("x").warning("Message")
    assert ("\x1b[" in terminal.getvalue()) is colored


@pytest.mark.parametrize(("level", "is_short"), [("info", True), ("debug", False)])
def test_lines_on_a_terminal_lack_what_is_only_for_searches(level: str, *, is_short: bool) -> None:
    terminal = Terminal()
    configure("console", level, terminal)
    fields = {"controllerGroup": "g", "controllerKind": "K", "reconcileID": "1", "causes": "x"}
    structlog.get_logger("x").warning("Message", name="pod", **fields)
    line = terminal.getvalue()
    assert "pod" in line
    assert all((key in line) is not is_short for key in fields)


def test_manager_logs_no_local_variables_if_the_program_does_not_configure_logging() -> None:
    program = textwrap.dedent("""
        import anyio, structlog
        from cfo.runtime import ClientConfig, Manager, ManagerOptions

        async def fail():
            password = "SECRET"
            try:
                raise ValueError("refused")
            except ValueError:
                structlog.get_logger().exception("Failed")
            manager.stop()

        manager = Manager(ClientConfig(server="http://127.0.0.1:1"), ManagerOptions(field_manager="test"))
        manager.add(fail)
        anyio.run(manager.run)
    """)
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "ValueError: refused" in result.stdout
    assert "SECRET" not in result.stdout


class FullDisk(io.StringIO):
    """A stream that takes lines only while it is not full."""

    full = False

    def write(self, line: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(line)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_line_that_cannot_be_written_is_counted_and_not_an_error(
    log_format: Literal["json", "console"],
) -> None:
    stream = FullDisk()
    configure(log_format, "info", stream)
    log = structlog.get_logger("cfo.test")
    stream.full = True
    log.info("lost")
    log.error("lost, too")
    logging.getLogger("aiohttp").error("lost, of another library")
    stream.full = False
    log.info("first after the failures")
    log.info("second")
    first, second = stream.getvalue().splitlines()
    assert "first after the failures" in first
    assert re.search(r'unwrittenLines("|\x1b\[\S+)?[:=]\S*3', first)
    assert "unwrittenLines" not in second


def test_log_of_a_program_that_configures_none_has_no_colors_in_a_pipe() -> None:
    program = """
        import structlog
        from cfo.runtime import ClientConfig, Manager
        Manager(ClientConfig(server="https://127.0.0.1:1"))
        structlog.get_logger().info("Started")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=True
    )
    assert b"Started" in done.stdout
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_long_values_are_cut(log_format: Literal["json", "console"]) -> None:
    stream = io.StringIO()
    configure(log_format, "info", stream)
    log = structlog.get_logger("cfo.test")
    long = "\u202e" * 100_000
    log.info(long)
    log.info("Value", name=long)
    log.info("Nested", names=[long], objects={long: 1})
    logging.getLogger("library").warning("%s", long)
    log.error("Failed", exc_info=ValueError(f"{long} END"))
    written = stream.getvalue()
    assert written.count("…") >= 6
    assert len(written) < 6 * 6 * 10_000  # each of the values that are cut, escaped
    assert "ValueError: " in written
    assert " END" in written
