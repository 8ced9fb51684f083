"""Tests of the gate: the interval of a ratio, the commits that are compared, and the exit code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from test.bench import __main__ as command_line
from test.bench.gate import (
    GateError,
    compare,
    default_base,
    has_changed,
    install_commit,
    resolve_commit,
)
from test.bench.harness import load_benchmarks

OLD = (1.00, 1.04, 0.97, 1.01, 0.99, 1.02, 0.98)


def scaled(factor: float) -> list[float]:
    """The same runs, each ``factor`` times as expensive."""
    return [factor * each for each in OLD]


@pytest.mark.parametrize(
    ("factor", "exceeds"), [(0.5, False), (1.0, False), (1.05, False), (1.2, True), (2.0, True)]
)
def test_ratio_exceeds_the_limit_only_with_its_whole_interval(factor: float, exceeds: bool) -> None:
    ratio = compare("cpu s", OLD, scaled(factor))
    assert ratio.low <= ratio.ratio <= ratio.high
    assert ratio.ratio == pytest.approx(factor, rel=0.01)
    assert ratio.exceeds(1.05) is exceeds


def test_interval_is_that_of_the_published_tables() -> None:
    """At 5 %, the tables of the Mann-Whitney test have the critical value 8 for 7 and 7 runs, and 0 for 4 and 4."""
    for runs, critical in ((7, 8), (4, 0)):
        old, new = [2.0**each for each in range(runs)], [3.0**each for each in range(runs)]
        ratios = sorted(after / before for after in new for before in old)
        result = compare("cpu s", old, new)
        assert (result.low, result.high) == (ratios[critical], ratios[-1 - critical])


def test_one_slow_run_does_not_fail_the_gate() -> None:
    assert not compare("cpu s", OLD, [*OLD[:-1], 9.0]).exceeds(1.05)


def test_equal_counts_have_the_ratio_one_and_new_writes_exceed() -> None:
    same = compare("writes", [0] * 7, [0] * 7)
    assert (same.low, same.ratio, same.high) == (1, 1, 1)
    assert compare("writes", [0] * 7, [1] * 7).exceeds(1.05)
    assert not compare("writes", [1] * 7, [0] * 7).exceeds(1.05)


def test_fewer_than_four_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="cpu s: 3 and 7 runs; at least 4"):
        compare("cpu s", OLD[:3], OLD)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits on main, the second of which is origin/main as well."""
    folder = tmp_path / "repository"
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.test"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(folder)], check=True)
    for subject in ("one", "two"):
        (folder / "README").write_text(subject)
        subprocess.run([*git, "add", "README"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", subject], check=True)
    subprocess.run([*git, "update-ref", "refs/remotes/origin/main", "HEAD"], check=True)
    return folder


def test_main_is_compared_with_its_parent_and_a_branch_with_main(repository: Path) -> None:
    one, two = resolve_commit("HEAD^", repository), resolve_commit("HEAD", repository)
    assert default_base(repository) == one
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.test"]
    for subject in ("three", "four"):
        subprocess.run(
            [*git, "commit", "--quiet", "--allow-empty", "--message", subject], check=True
        )
    assert default_base(repository) == two


def test_only_changes_of_the_program_are_measured(repository: Path) -> None:
    one, two = resolve_commit("HEAD^", repository), resolve_commit("HEAD", repository)
    assert not has_changed(one, two, repository)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.test"]
    (repository / "cfo").mkdir()
    (repository / "cfo/cli.py").touch()
    subprocess.run([*git, "add", "cfo"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "three"], check=True)
    assert has_changed(two, resolve_commit("HEAD", repository), repository)


def test_the_same_commit_passes_without_a_run() -> None:
    result = CliRunner().invoke(command_line.main, ["gate", "--base", "HEAD"])
    assert (result.exit_code, result.output.startswith("passed: cfo/ is the same")) == (0, True), (
        result.output
    )


def test_unknown_commits_and_commits_without_a_program_are_errors(
    repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(GateError, match="'nowhere': no such commit"):
        resolve_commit("nowhere", repository)
    with pytest.raises(GateError, match=r"constraints\.txt"):
        install_commit(resolve_commit("HEAD", repository), tmp_path / "builds", repository)


def run_gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: float, new: float) -> Result:
    """Run the command with programs that cost ``old`` and ``new``."""
    programs = []
    for name, cost in (("old", old), ("new", new)):
        programs.append(tmp_path / name)
        programs[-1].write_text(str(cost))
    remaining = iter(programs)
    monkeypatch.setattr(command_line, "has_changed", lambda _old, _new: True)
    monkeypatch.setattr(command_line, "install_commit", lambda _commit, _folder: next(remaining))
    return CliRunner().invoke(
        command_line.main, ["gate", "--runs", "4", "--quick", "--base", "HEAD"]
    )


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize(
    ("new", "code", "end"), [(1.0, 0, "passed"), (1.5, 1, "FAILED: start cpu s")]
)
def test_exit_code_depends_on_the_cost_of_the_new_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new: float, code: int, end: str
) -> None:
    result = run_gate(monkeypatch, tmp_path, 1.0, new)
    assert result.exit_code == code, result.output
    assert result.output.splitlines()[-1] == end
    assert "4 runs of each, 20 RayClusters" in result.output


def test_unknown_base_is_one_line_with_exit_code_2() -> None:
    assert "gate" in load_benchmarks()
    result = CliRunner().invoke(command_line.main, ["gate", "--base", "no-such-commit"])
    assert (result.exit_code, result.output.strip()) == (
        2,
        "Error: 'no-such-commit': no such commit",
    )
