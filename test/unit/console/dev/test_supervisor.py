"""Restarting a program when its source changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from cfo.cli import cli
from cfo.console.dev.supervisor import Supervisor, syntax_errors

PROGRAM = """
import signal, sys, time
from pathlib import Path

def stop(*_):
    Path({journal!r}).open("a").write("stopped\\n")
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
Path({journal!r}).open("a").write({line!r} + "\\n")
time.sleep(300)
"""


def test_syntax_errors_name_file_and_line(tmp_path: Path) -> None:
    good, bad, null = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "null.py"
    good.write_text("x = 1\n")
    bad.write_text("x = 1\nif x\n")
    null.write_bytes(b"x = 1\0")
    (tmp_path / "bad.yaml").write_text("[")
    found = syntax_errors([good, bad, null, tmp_path / "bad.yaml", tmp_path / "deleted.py"])
    assert found[0] == f"{bad}:2: expected ':'"
    assert len(found) == 2


async def test_program_is_restarted_once_for_each_burst_and_kept_during_syntax_errors(
    tmp_path: Path,
) -> None:
    source, journal = tmp_path / "program.py", tmp_path / "journal"
    source.write_text(PROGRAM.format(journal=str(journal), line="first"))
    unsaved = tmp_path.parent / "unsaved"
    reports: list[str] = []

    def save(path: Path, text: str) -> None:
        unsaved.write_text(text)
        unsaved.replace(path)  # at once, as editors do

    async def wait_for(condition: Callable[[], bool]) -> None:
        with anyio.fail_after(120):
            while not condition():  # noqa: ASYNC110 (files and other processes)
                await anyio.sleep(0.02)

    def lines() -> list[str]:
        return journal.read_text().splitlines() if journal.exists() else []

    supervisor = Supervisor([sys.executable, str(source)], [tmp_path], reports.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: supervisor.run(handle_signals=False))
        await wait_for(lambda: lines() == ["first"])

        save(source, "this is no program")
        await wait_for(lambda: len(reports) == 1)
        assert "invalid syntax; waiting for the next change" in reports[0]
        assert lines() == ["first"]

        burst = [source, *(tmp_path / f"other{index}.py" for index in range(20))]
        for path in burst:
            save(path, PROGRAM.format(journal=str(journal), line="second"))
        await wait_for(lambda: "second" in lines())
        assert lines()[:2] == ["first", "stopped"]

        save(source, "raise SystemExit(3)")
        await wait_for(
            lambda: reports[-1] == "the program ended with code 3; waiting for the next change"
        )
        assert (
            3 <= supervisor.starts < len(burst)
        )  # a busy machine may write them in several bursts
        supervisor.stop()


async def test_program_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    code = (
        "import signal, time, pathlib; signal.signal(15, signal.SIG_IGN); "
        f"open({str(journal)!r}, 'w'); time.sleep(60)"
    )
    supervisor = Supervisor(
        [sys.executable, "-c", code], [tmp_path], lambda _: None, grace_seconds=0.1
    )
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: supervisor.run(handle_signals=False))
            while not journal.exists():  # noqa: ASYNC110 (another process)
                await anyio.sleep(0.02)
            supervisor.stop()


def test_unknown_program_is_reported_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli, ["dev", "--watch", str(tmp_path), "--", "no-such-program"], prog_name="cfo"
    )
    assert (result.exit_code, result.output) == (
        2,
        "Error: cannot run no-such-program: there is no such program\n",
    )


def test_program_that_cannot_be_started_is_reported_in_one_line(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o700)
    result = CliRunner().invoke(
        cli, ["dev", "--watch", str(tmp_path), "--", str(program)], prog_name="cfo"
    )
    assert (result.exit_code, result.output) == (
        1,
        f"Error: cannot run {program}: No such file or directory\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--embedded", "--until-settled", "5"],
        ["--apply", "config"],
        ["--embedded", "--webhook-url", "https://h:1"],
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[4])
    result = CliRunner().invoke(cli, ["run", "--dev", *arguments], prog_name="cfo")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
