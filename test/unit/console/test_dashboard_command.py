"""The command ``cfo dashboard``: its errors, and the address that it prints."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from click.testing import CliRunner

from cfo.console import dashboard_command
from cfo.console.dashboard_command import command
from cfo.runtime import RESTMapper

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [
        {"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "team"}}
    ],
    "users": [{"name": "me", "user": {"token": "secret-token"}}],
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(KUBECONFIG))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-n", "team", "-A"], 2, "--namespace and --all-namespaces cannot be used together"),
        (["-n", "a/b"], 2, "--namespace: 'a/b': must be the name of a namespace"),
        (["--port", "70000"], 2, "70000"),
        (["--kubeconfig", "/nonexistent"], 3, "/nonexistent"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    arguments: list[str], code: int, message: str
) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == code
    assert message in result.output


async def exists(*arguments: Any) -> None:
    """The namespace exists."""


async def reachable(mapper: RESTMapper, server: str) -> None:
    """Replace the check of a server that does not exist."""


def test_server_that_cannot_be_reached_is_named_in_one_line(kubeconfig: str) -> None:
    result = CliRunner().invoke(command, ["--kubeconfig", kubeconfig])
    assert result.exit_code == 3
    (line,) = result.output.splitlines()
    assert line.startswith("Error: ")
    assert "cannot connect to 127.0.0.1:1: Connection refused" in line


def test_server_that_does_not_answer_is_named_in_one_line(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_command, "_TIMEOUT", 0.0)
    result = CliRunner().invoke(command, ["--kubeconfig", kubeconfig])
    assert result.exit_code == 3
    assert result.output == "Error: https://127.0.0.1:1 does not answer within 0 s\n"


def test_port_in_use_is_reported(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_command, "_check_reachable", reachable)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = CliRunner().invoke(command, ["--kubeconfig", kubeconfig, "--port", str(port)])
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.output


def test_address_is_printed_without_credentials_of_the_kubeconfig(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[Any] = []
    namespaces: list[str] = []
    opened: list[str] = []

    async def remember(scope: Any, *, task_status: Any) -> None:
        running.append(scope)
        task_status.started()

    def open_browser(url: str) -> bool:
        opened.append(url)
        structlog.get_logger("cfo.runtime").warning("Permission denied")  # the page says so
        running[-1].cancel()
        return True

    monkeypatch.setattr(dashboard_command, "_stop_on_signal", remember)
    monkeypatch.setattr(
        dashboard_command,
        "client_source",
        lambda transport, mapper, views, namespace: namespaces.append(namespace),
    )
    monkeypatch.setattr(dashboard_command, "_check_reachable", reachable)
    monkeypatch.setattr(dashboard_command, "require_namespace", exists)
    monkeypatch.setattr("webbrowser.open", open_browser)
    for arguments in ([], ["-A"], ["-n", "other"]):
        result = CliRunner().invoke(command, ["--kubeconfig", kubeconfig, "--open", *arguments])
        assert result.exit_code == 0
        assert result.output == f"dashboard: {opened[-1]}\n"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S{32}", opened[-1])
    assert namespaces == ["team", "", "other"]
    assert len(set(opened)) == 3
