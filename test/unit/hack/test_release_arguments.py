"""Unit tests of the arguments that the release command reads from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.release import command


def test_arguments_are_words_of_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGS", "v9; touch pwned")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        command.main(["--arguments-from", "ARGS"], tmp_path)
    assert "unrecognized arguments: touch pwned" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_unbalanced_quotes_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGS", "v1.2.3 '")
    assert command.main(["--run", "--arguments-from", "ARGS"]) == 2
    assert "ARGS: No closing quotation" in capsys.readouterr().err
