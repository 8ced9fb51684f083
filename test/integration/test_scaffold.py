"""`cfo new` writes a project that passes its own lint and tests, and runs on the embedded control plane."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cfo.cli import cli
from cfo.scaffold.project import InvalidProject, Project, render
from test.support.config_map_webhooks import free_url

ROOT = Path(__file__).parents[2]
LONG = ("very-long-name-of-a-database-operator", "VeryLongDatabaseKind", "databases.long.example.com")


def new_project(folder: Path, *arguments: str) -> Path:
    result = CliRunner().invoke(cli, ["new", *arguments[:1], str(folder), *arguments[1:]])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def website_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_project(tmp_path_factory.mktemp("new") / "project", "website-operator")


def run(folder: Path, *arguments: str) -> None:
    search_path = f"{ROOT}{os.pathsep}{ROOT / 'envtest' / 'src'}"
    environment = {**os.environ, "PYTHONPATH": search_path}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_project_passes_its_own_tests_and_lint(tmp_path: Path) -> None:
    name, kind, group = LONG
    folder = new_project(tmp_path / "project", name, "--kind", kind, "--group", group)
    run(folder, "ruff", "check", ".")
    run(folder, "ruff", "format", "--check", ".")
    run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert not [path for path in folder.rglob("*") if path.is_file() and "@@" in path.read_text(errors="replace")]


def test_new_project_runs_on_the_embedded_control_plane(website_project: Path) -> None:
    folder = website_project
    run(folder, "ruff", "format", "--check", ".")
    log = folder / "log"
    arguments = ["-m", "website_operator", "--embedded", "--webhook-url", str(free_url())]
    with (
        log.open("w") as output,
        subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            deadline = time.monotonic() + 30
            while "Applied the sample" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0, log.read_text()
    assert yaml.safe_load((folder / "website-operator.kubeconfig").read_text())["kind"] == "Config"
    result = CliRunner().invoke(cli, ["new", "website-operator", str(folder)])
    assert result.exit_code == 2
    assert "must be an empty folder, or not exist" in result.output


def test_installation_has_the_permissions_of_the_code(website_project: Path) -> None:
    objects = list(yaml.safe_load_all((website_project / "config" / "install.yaml").read_text()))
    kinds = [obj["kind"] for obj in objects]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert {"ClusterRole", "Role", "Deployment", "Service", "ValidatingWebhookConfiguration"} <= set(kinds)
    (role,) = (obj for obj in objects if obj["kind"] == "ClusterRole")
    assert {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": ["get", "list", "watch"]} in role["rules"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Website"}, "NAME: 'Website': must be a lower-case DNS label"),
        ({"name": "json"}, "NAME: 'json': the Python package json would hide another one"),
        ({"name": "../x"}, "NAME: '../x': must be"),
        ({"name": "a", "kind": "web site"}, "--kind: 'web site': must be a CamelCase word"),
        ({"name": "class-operator"}, "--kind: 'Class': must not be a Python keyword"),
        ({"name": "a", "group": "x"}, "--group: 'x': must be a domain name"),
        ({"name": "a", "group": "a.b\nc: d"}, "--group: "),
    ],
)
def test_invalid_names_are_rejected(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidProject, match=message):
        Project(**arguments)


def test_kind_is_derived_from_the_name() -> None:
    project = Project(name="web-site-operator")
    assert (project.kind, project.variable, project.plural) == ("WebSite", "web_site", "websites")
    assert any(str(path) == ".github/workflows/tests.yaml" for path in render(project))
