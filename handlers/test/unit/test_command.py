"""Errors of the command ``cfo-handlers`` are one line, with the exit code 2 for invalid input."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import cfo_handlers as kopf
from cfo_handlers.command import command


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("cfo_handlers.declarations._default_registry", kopf.OperatorRegistry())
    monkeypatch.setattr("cfo_handlers.command.configure", lambda **_: None)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "program.py"
    file.write_text(
        "import cfo_handlers as kopf\n\n@kopf.on.startup()\ndef start(**_: object) -> None: ...\n"
    )
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unknown"], "No such option"),
        (["-n", "dev-*"], "namespace 'dev-*': must be a name; patterns are not supported"),
        (["-A", "-n", "dev"], "either clusterwide or namespaces can be given, not both"),
        (["-L", "tcp://x"], "liveness endpoint 'tcp://x': must be http://HOST:PORT/PATH"),
        (["-L", "http://x:y/"], "liveness endpoint 'http://x:y/': must be http://HOST:PORT/PATH"),
    ],
)
def test_invalid_arguments_are_one_line(program: str, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, ["run", *arguments, program], prog_name="cfo-handlers")
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    assert line.startswith(f"Error: {message}")


@pytest.mark.parametrize("content", [None, "import cfo_handlers as kopf"])
def test_program_without_handlers_is_an_error(
    program: str, tmp_path: Path, content: str | None
) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text(content or "")
    paths = [] if content is None else [str(empty)]
    result = CliRunner().invoke(command, ["run", "-A", *paths], prog_name="cfo-handlers")
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: no handlers are declared; name the file")


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: test, user: {token: test}}]
"""


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("None", "is not set, but there are admission handlers: set it in a startup handler"),
        ("'x'", "str: must be a WebhookServer"),
        ("kopf.WebhookNgrokTunnel()", "tunnels are not supported"),
        (
            "kopf.WebhookServer(certfile='/a/crt', pkeyfile='/b/key')",
            "certfile /a/crt, pkeyfile /b/key: must be in the same directory",
        ),
    ],
)
def test_admission_server_that_cannot_serve_is_one_line(
    program: str, tmp_path: Path, server: str, problem: str
) -> None:
    (tmp_path / "missing").write_text(KUBECONFIG)
    Path(program).write_text(
        "import cfo_handlers as kopf\n"
        "@kopf.on.startup()\n"
        f"def start(settings, **_): settings.admission.server = {server}\n"
        "@kopf.on.validate('configmaps')\n"
        "def check(**_): ...\n"
    )
    result = CliRunner().invoke(command, ["run", "-A", program], prog_name="cfo-handlers")
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    *_, line = result.output.splitlines()  # after log messages
    assert line.startswith(f"Error: settings.admission.server: {problem}")
    assert "--help" not in line


def test_missing_cluster_is_one_line(program: str) -> None:
    result = CliRunner().invoke(command, ["run", program])
    assert result.exit_code == 1, result.output
    (line,) = result.output.splitlines()
    assert "missing" in line
