"""`cfo new` writes a project that passes its own lint and tests, and runs on the embedded control plane."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
import yaml
from click.testing import CliRunner
from structlog.testing import capture_logs

from cfo.cli import cli
from cfo.console.new.project import InvalidProject, Project, render
from cfo.runtime import (
    DEPLOYMENT,
    GVK,
    SERVICE_ACCOUNT,
    ClientConfig,
    NamespacedName,
    has_condition,
    load_config,
    wait_for,
)
from cfo.runtime.client import connect
from cfo.runtime.objects import CUSTOM_RESOURCE_DEFINITION
from envtest import ControlPlane
from test.support.charts import render_chart
from test.support.config_map_webhooks import free_url
from test.support.manifests import by_key
from test.support.operator_process import OperatorProcess
from test.support.preloaded import PreloadedCommand, run_preloaded
from test.support.raycluster_environment import eventually

ROOT = Path(__file__).parents[2]
LONG = (
    "very-long-name-of-a-database-operator",
    "VeryLongDatabaseKind",
    "databases.long.example.com",
)

TYPES = ROOT / ".mypy_cache" / "scaffold"
"""What mypy knows of cfo from `make lint-project`; without it, the library is checked for 17 s."""

UNSET = {"VIRTUAL_ENV", "VENV", "MAKEFLAGS", "MAKEOVERRIDES"}
"""Variables of the make that runs these tests."""


def new_project(folder: Path, *arguments: str) -> Path:
    result = CliRunner().invoke(cli, ["new", *arguments[:1], str(folder), *arguments[1:]])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def website_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project, which tests do not change."""
    return new_project(tmp_path_factory.mktemp("new") / "project", "website-operator")


@pytest.fixture
def project(website_project: Path, tmp_path: Path) -> Path:
    """Return a copy of a new project that a test may change."""
    return shutil.copytree(website_project, tmp_path / "project")


def run(folder: Path, *arguments: str) -> None:
    search_path = f"{ROOT}{os.pathsep}{ROOT / 'envtest' / 'src'}"
    environment = {**os.environ, "PYTHONPATH": search_path}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_in_fork(folder: Path, module: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run a module as :func:`run`, but in a fork of a process that has imported the library.

    Returns the exit code and the output.
    """
    environment = {**os.environ, **variables}
    return anyio.run(partial(run_preloaded, module=module, env=environment, cwd=folder), *arguments)


def run_tests(folder: Path, selection: str, path: str = "tests/test_operator.py") -> None:
    """Run the selected tests of a project in a fork, with only the plugins that its environment has."""
    arguments = ("-q", "-p", "no:cacheprovider", "-k", selection, path)
    code, output = run_in_fork(
        *(folder, "pytest", *arguments),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        PYTEST_PLUGINS="pytest_asyncio.plugin,cfo.runtime.pytest_plugin,envtest.pytest_plugin",
    )
    assert code == 0, output


def generate(folder: Path) -> None:
    """Write the manifests of a project."""
    code, output = run_in_fork(folder, "website_operator.generate")
    assert code == 0, output


def test_new_project_passes_its_own_tests_and_lint(tmp_path: Path) -> None:
    name, kind, group = LONG
    folder = new_project(tmp_path / "project", name, "--kind", kind, "--group", group)
    run(folder, "ruff", "check", ".")
    run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not [path for path in files if "@@" in path.read_text(errors="replace")]


def test_project_can_have_the_name_of_one_of_its_test_modules(tmp_path: Path) -> None:
    folder = new_project(tmp_path / "project", "test-operator")
    tests = folder / "tests"
    assert (tests / "test_operator.py").is_file()
    code, output = run_in_fork(
        *(folder, "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        PYTEST_PLUGINS="pytest_asyncio.plugin,cfo.runtime.pytest_plugin,envtest.pytest_plugin",
    )
    assert code == 0, output
    assert all(path.name in output for path in tests.glob("test_*.py"))


def test_make_format_repairs_what_make_lint_finds(project: Path) -> None:
    link_environment(project)
    api = project / "website_operator" / "api.py"
    original = api.read_text()
    api.write_text(
        original.replace("from cfo", "import os\nfrom cfo").replace('"""The API', '\n\n"""The API')
    )
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    subprocess.run(
        ["make", "format"], cwd=project, env=environment, capture_output=True, check=True
    )
    assert api.read_text() == original
    run(project, "ruff", "check", ".")
    run(project, "ruff", "format", "--check", ".")


def link_environment(folder: Path) -> None:
    """Let the environment of these tests be that of the project, whose installation is done."""
    (folder / ".venv").mkdir()
    for path in Path(sys.executable).parents[1].iterdir():
        (folder / ".venv" / path.name).symlink_to(path)
    (folder / ".venv" / ".website-operator").touch()


def test_forgotten_permission_fails_the_tests_of_a_new_project(project: Path) -> None:
    reconciler = project / "website_operator" / "reconciler.py"
    reconciler.write_text(
        reconciler.read_text().replace('"configmaps", CRUD', '"configmaps", READ')
    )
    with pytest.raises(
        AssertionError, match='website-operator" cannot patch resource "configmaps"'
    ):
        run_tests(project, "refusal")


def test_wrong_result_of_a_reconcile_fails_the_tests_of_a_new_project(project: Path) -> None:
    reconciler = project / "website_operator" / "reconciler.py"
    code = reconciler.read_text()
    mistaken = code.replace("return Result(requeue_after=results.retry_after)", "return results")
    assert mistaken != code
    reconciler.write_text(mistaken)
    message = r"(?s)apply: returned a value of type ChildResults: must return a Result or None"
    with pytest.raises(AssertionError, match=message):
        run_tests(project, "withdrawn")


def test_typo_in_a_reconciler_is_the_error_of_the_test_of_a_new_project(project: Path) -> None:
    reconciler = project / "website_operator" / "reconciler.py"
    code = reconciler.read_text()
    mistaken = code.replace("obj.spec.message", "obj.spec.mesage")
    assert mistaken != code
    reconciler.write_text(mistaken)
    message = r"E +AttributeError: .*'mesage'\s+E +raised in: reconcile of default/a by controller"
    with pytest.raises(AssertionError, match=message):
        run_tests(project, "withdrawn")


FAILING_INDEX = """\
        manager.cache.informer(CONFIG_MAP, label_selector=f"{MANAGED_BY}={NAME}").add_index(
            "site", lambda entry: [entry.meta.labels["site"]]
        )
"""
FAILING_MAP_FUNCTION = """\
        builder.watches(
            CONFIG_MAP,
            EnqueueRequestsFromMapFunc(lambda entry: [Request("default", entry.meta.labels["site"])]),
            label_selector=f"{MANAGED_BY}={NAME}",
        )
"""


@pytest.mark.parametrize("mistake", [FAILING_INDEX, FAILING_MAP_FUNCTION], ids=["index", "map"])
def test_function_that_fails_for_objects_fails_the_tests_of_a_new_project(
    project: Path, mistake: str
) -> None:
    reconciler = project / "website_operator" / "reconciler.py"
    code = reconciler.read_text().replace(
        "        # Without the selector", f"{mistake}        # Without the selector"
    )
    code = code.replace(
        "import (\n    CONFIG_MAP", "import (\n    EnqueueRequestsFromMapFunc,\n    CONFIG_MAP"
    )
    assert mistake in code
    reconciler.write_text(code)
    message = r"E +KeyError: 'site'\s+E +raised in: .* function .* default/a"
    with pytest.raises(AssertionError, match=message):
        run_tests(project, "withdrawn")


SECOND_CHILD = """\
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"namespace": obj.metadata.namespace, "name": obj.metadata.name},
        }
        children = [Child.present(desired_config_map(obj)), Child.present(account)]
"""


def test_second_child_of_a_new_project_does_not_hide_that_the_first_is_refused(
    project: Path,
) -> None:
    reconciler = project / "website_operator" / "reconciler.py"
    code = reconciler.read_text()
    rule = '        Rule("", "configmaps", CRUD),\n'
    code = code.replace(rule, rule + '        Rule("", "serviceaccounts", CRUD),\n')
    code = code.replace(
        "        children = [Child.present(desired_config_map(obj))]\n", SECOND_CHILD
    )
    assert "serviceaccounts" in code
    assert SECOND_CHILD in code
    reconciler.write_text(code)
    run_tests(project, "another_owner or refusal")


def test_forgotten_permission_to_watch_is_named_by_the_tests_of_a_new_project(
    project: Path,
) -> None:
    reconciler = project / "website_operator" / "reconciler.py"
    reconciler.write_text(
        reconciler.read_text().replace('        Rule("", "configmaps", CRUD),\n', "")
    )
    tests = project / "tests" / "test_operator.py"
    tests.write_text(tests.read_text().replace("ready(timeout=20)", "ready(timeout=3)"))
    missing = r'ConfigMap\.v1 \(missing rule \{apiGroups: \[""\], resources: \["configmaps"\]'
    with pytest.raises(
        AssertionError, match=rf"manager is not ready after 3 s: .*not synced: {missing}"
    ):
        run_tests(project, "refusal")


THEME = """\
from __future__ import annotations

from cfo.runtime import READ, APIModel, Builder, CustomResource, Manager, Request, Result, Rule

from website_operator.options import Options


class ThemeSpec(APIModel):
    color: str


class Theme(CustomResource, group="example.com", version="v1alpha1", scope="Cluster"):
    spec: ThemeSpec


class ThemeReconciler:
    kind = Theme
    rules = (Rule("example.com", "themes", READ),)

    @classmethod
    def register(cls, manager: Manager, options: Options) -> None:
        Builder(manager).for_(Theme).complete(cls())

    async def reconcile(self, request: Request) -> Result:
        return Result()
"""


WEBSITE_V1 = """

class WebsiteV1(
    CustomResource, group="example.com", version="v1", kind="Website", plural="websites", storage=False
):
    spec: WebsiteSpec
    status: WebsiteStatus = Field(default_factory=WebsiteStatus)
"""

PALETTE = """

class PaletteSpec(APIModel):
    color: str


class Palette(CustomResource, group="example.com", version="v1alpha1", scope="Cluster"):
    spec: PaletteSpec
"""


@pytest.fixture
def project_of_two_kinds(project: Path) -> Path:
    """A second kind is one module and one line, as the README of a project describes."""
    (project / "website_operator" / "theme.py").write_text(THEME)
    operator = project / "website_operator" / "operator.py"
    code = operator.read_text()
    changed = code.replace("[WebsiteReconciler]", "[WebsiteReconciler, ThemeReconciler]").replace(
        "import WebsiteReconciler\n",
        "import WebsiteReconciler\nfrom website_operator.theme import ThemeReconciler\n",
    )
    assert changed.count("ThemeReconciler") == 2
    operator.write_text(changed)
    return project


def test_manifests_and_tests_of_a_project_include_a_second_kind_and_version(
    project_of_two_kinds: Path,
) -> None:
    package = project_of_two_kinds / "website_operator"
    with (package / "api.py").open("a") as api:
        api.write(WEBSITE_V1)
        api.write(PALETTE)
    operator = (package / "operator.py").read_text()
    operator = operator.replace(
        "[type[CustomResource]] = []", "[type[CustomResource]] = [WebsiteV1, Palette]"
    )
    operator = operator.replace(
        "from website_operator.options",
        "from website_operator.api import Palette, WebsiteV1\nfrom website_operator.options",
    )
    (package / "operator.py").write_text(operator)
    generate(project_of_two_kinds)
    config = project_of_two_kinds / "config"
    chart = project_of_two_kinds / "chart"
    crds = list(yaml.safe_load_all((config / "crd.yaml").read_text()))
    assert [crd["spec"]["names"]["kind"] for crd in crds] == ["Website", "Theme", "Palette"]
    assert [version["name"] for version in crds[0]["spec"]["versions"]] == ["v1alpha1", "v1"]
    assert (chart / "crds" / "crd.yaml").read_text() == (config / "crd.yaml").read_text()
    objects = list(yaml.safe_load_all((config / "install.yaml").read_text()))
    resources = {
        obj["metadata"]["name"]: {name for rule in obj["rules"] for name in rule["resources"]}
        for obj in objects
        if obj["kind"] == "ClusterRole"
    }
    # The first role is bound in some namespaces if the operator is limited to them, the other in the cluster.
    assert "websites" in resources["website-operator"]
    assert "themes" not in resources["website-operator"]
    assert "themes" in resources["website-operator-cluster"]
    # The operator of this test is ready only if the API server has the CRD, and the account the permission.
    run_tests(project_of_two_kinds, "withdrawn or current", "tests")


def test_reconciler_without_rules_cannot_be_forgotten_in_a_project(
    project_of_two_kinds: Path,
) -> None:
    theme = project_of_two_kinds / "website_operator" / "theme.py"
    theme.write_text(THEME.replace('    rules = (Rule("example.com", "themes", READ),)\n', ""))
    with pytest.raises(AssertionError, match="'ThemeReconciler' has no attribute 'rules'"):
        generate(project_of_two_kinds)
    with pytest.raises(AssertionError, match=r'missing following "ReconcilerClass".*\n.* rules'):
        run(project_of_two_kinds, "mypy", "website_operator/operator.py", "--cache-dir", str(TYPES))


def test_files_of_a_project_are_formatted_whatever_the_lengths_of_its_names(tmp_path: Path) -> None:
    for length in (2, 9, 17, 25, 33, 40):
        for kind_length in (2, 21, 40):
            project = Project(name="n" * length, kind="K" * kind_length, group="example.com")
            for path, text in render(project).items():
                file = tmp_path / f"{length}-{kind_length}" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
    run(tmp_path, "ruff", "format", "--check", ".")


def wait_for_text(log: Path, wanted: str, process: subprocess.Popen[bytes]) -> str:
    """Wait until ``wanted`` is in ``log``, and return its content."""
    deadline = time.monotonic() + 120
    while wanted not in (text := log.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    return text


WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}
"""


REFUSED_SAMPLE = """
apiVersion: example.com/v1alpha1
kind: Website
metadata: {name: refused}
spec: {configMap: 1}
"""


async def test_new_project_runs_on_the_embedded_control_plane(project: Path) -> None:
    sample = project / "config" / "sample.yaml"
    sample.write_text(f"{REFUSED_SAMPLE}---\n{sample.read_text()}")
    kubeconfig = project / "website-operator.kubeconfig"
    health = f"127.0.0.1:{free_url().port}"
    arguments = ("--embedded", "--webhook-url", str(free_url()), "--health-bind-address", health)
    process = await PreloadedCommand.start(
        *arguments, env=os.environ, cwd=project, merge=True, module="website_operator"
    )
    operator = OperatorProcess(process)

    async def has_reconciled_the_sample() -> bool:
        assert process.returncode is None, operator.output
        applied = "Applied the sample" in operator.output
        return applied and "Reported the condition Ready" in operator.output

    try:
        await eventually(has_reconciled_the_sample, "the sample")
        _, writer = await asyncio.open_connection(*health.split(":"))
        writer.close()
        async with connect(await load_config(str(kubeconfig)), field_manager="test") as client:
            (website,) = await client.list(GVK("example.com", "v1alpha1", "Website"))
            # the webhook set the default when the sample was created, not in a later update
            assert website["spec"]["configMap"] == website["metadata"]["name"]
            assert website["metadata"]["generation"] == 1
            await client.create(yaml.safe_load(WEB))
            key = NamespacedName("default", "web")
            await wait_for(client, DEPLOYMENT, key, has_condition("Available"), timeout=240)
    finally:
        process.send_signal(signal.SIGINT)
    assert await operator.exit_code() == 0, operator.output
    (refusal,) = re.findall(r"Cannot apply the sample.*", operator.output)
    assert "name=refused" in refusal
    assert "spec.configMap" in refusal
    assert "Traceback" not in operator.output
    assert yaml.safe_load(kubeconfig.read_text())["kind"] == "Config"
    result = CliRunner().invoke(cli, ["new", "website-operator", str(project)])
    assert result.exit_code == 2
    assert "must be an empty folder, or not exist" in result.output


def test_make_dev_reloads_the_crd_and_leaves_no_process(project: Path) -> None:
    """Other programs terminate only make; Ctrl-C on a terminal interrupts all processes of its group (next test)."""
    link_environment(project)
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'envtest' / 'src'}"

    async def change_the_api() -> str:
        config = await load_config(str(project / "website-operator.kubeconfig"))
        async with connect(config, field_manager="test") as client:
            api = project / "website_operator" / "api.py"
            api.write_text(api.read_text().replace("The text in the", "The new text in the"))
            key = NamespacedName("", "websites.example.com")

            async def is_reloaded() -> bool:
                return "The new text in the" in str(
                    await client.get(CUSTOM_RESOURCE_DEFINITION, key)
                )

            await eventually(is_reloaded, "the CRD of the changed code")
        return config.server

    log = project / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["make", "dev"],
            cwd=project,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_accept_interrupts,
        ) as process,
    ):
        try:
            wait_for_text(log, "Starting workers", process)
            address = urlsplit(anyio.run(change_the_api))
            process.terminate()
            process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port))


def _accept_interrupts() -> None:
    """Undo what a shell that runs the tests in the background does; a shell cannot trap a signal that it ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_while_the_api_server_starts_ends_make_dev(project: Path) -> None:
    link_environment(project)
    lines = (project / "Makefile").read_text().splitlines(keepends=True)
    (start,) = [index for index, line in enumerate(lines) if "/cfo envtest" in line]
    lines[start] = "\tsh -c 'echo starting; exec sleep 300' & server=$$!; \\\n"
    (project / "Makefile").write_text("".join(lines))
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    log = project / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            ["make", "-s", "dev"],
            cwd=project,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_accept_interrupts,
        ) as process,
    ):
        try:
            wait_for_text(log, "starting", process)
            os.killpg(process.pid, signal.SIGINT)
            process.wait(120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("shares_port", [True, False])
def test_busy_port_of_the_webhooks_is_one_line(project: Path, shares_port: bool) -> None:
    with socket.socket() as busy:
        if shares_port:  # as replicas do; the answers show that it is another program
            busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        url = f"https://127.0.0.1:{port}"
        code, output = run_in_fork(project, "website_operator", "--embedded", "--webhook-url", url)
    assert code == 1
    last_line = output.splitlines()[-1]
    assert last_line.startswith("WebhookServer webhooks failed: AddressUnavailable: ")
    assert str(port) in last_line
    assert "in use" in last_line
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--webhook-url", "http://x", "'http://x': must be https://HOST:PORT"),
        ("--namespaces", "a,B", "namespace: 'B': must be the name of a namespace"),
        ("--metrics-bind-address", "x", "'x': must be HOST:PORT"),
        ("--sample", "missing.yaml", "missing.yaml: No such file or directory"),
        (
            "--sample",
            "chart/values.yaml",
            "values.yaml: each document must have apiVersion, kind and",
        ),
    ],
)
def test_wrong_option_is_one_error(
    website_project: Path, option: str, value: str, problem: str
) -> None:
    code, output = run_in_fork(website_project, "website_operator", "--embedded", option, value)
    assert code == 2
    assert problem in output.splitlines()[-1]
    assert "Traceback" not in output


def test_crd_that_the_api_server_refuses_is_one_error(project: Path) -> None:
    api = project / "website_operator" / "api.py"
    api.write_text(api.read_text().replace("self == oldSelf", "self == old"))
    code, output = run_in_fork(project, "website_operator", "--embedded")
    assert code == 2
    assert output.startswith("Error: apply customresourcedefinitions.apiextensions.k8s.io: ")
    assert "properties[configMap].x-kubernetes-validations[0].rule: Invalid value: " in output
    assert "undeclared reference to 'old'" in output
    assert "Traceback" not in output


def test_name_of_an_installed_package_is_refused(tmp_path: Path) -> None:
    """Also if the distribution has the same name, unless it is this project in its own environment."""
    result = CliRunner().invoke(cli, ["new", "msgspec", str(tmp_path / "project")])
    assert result.exit_code == 2
    assert "the Python package msgspec would hide that of msgspec" in result.output


def test_missing_kubeconfig_is_one_line(website_project: Path) -> None:
    code, output = run_in_fork(website_project, "website_operator", KUBECONFIG="/nonexistent")
    assert (code, output) == (1, "$KUBECONFIG: /nonexistent: no such file\n")


def test_makefile_uses_the_active_environment_or_installs_the_library(
    website_project: Path, tmp_path: Path
) -> None:
    def commands(*arguments: str, active: Path | None = None) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        if active is not None:
            environment["VIRTUAL_ENV"] = str(active)
        command = ["make", "-n", "test", *arguments]
        done = subprocess.run(
            command,
            cwd=website_project,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    url = "https://example.com/cfo"
    assert f"'{url}#subdirectory=envtest' '{url}'" in commands(f"CFO={url}")
    assert "'../cfo/envtest' '../cfo'" in commands("CFO=../cfo")
    (tmp_path / "bin").mkdir()
    for name in ("bin/cfo", "codeflare_operator-1-py3-none-any.whl", "envtest-1-py3-none-any.whl"):
        (tmp_path / name).touch()
    wheels = (
        f"{tmp_path}/codeflare_operator-1-py3-none-any.whl {tmp_path}/envtest-1-py3-none-any.whl"
    )
    assert wheels in commands(f"CFO={tmp_path}")
    assert "import cfo" not in commands("CFO=")  # the package index has the library
    assert "test CFO=../cfo" in commands(f"CFO={url}"), "the remedy if the library cannot be cloned"
    assert f"{tmp_path}/bin/python -m pytest" in commands(active=tmp_path)
    assert ".venv/bin/python -m pytest" in commands(active=tmp_path / "elsewhere")
    # The build of an image sees no other folder: it gets a wheel.
    image = commands("image", "CFO=../cfo")
    assert "pip wheel --quiet --no-deps --wheel-dir . ../cfo\n" in image
    assert "--build-arg CFO=''" in image
    assert f"--build-arg CFO='{url}'" in commands("image", f"CFO={url}")


def test_installation_has_the_permissions_of_the_code(website_project: Path) -> None:
    objects = list(yaml.safe_load_all((website_project / "config" / "install.yaml").read_text()))
    kinds = [obj["kind"] for obj in objects]
    assert kinds[0] == "Namespace"
    assert {
        "ClusterRole",
        "Role",
        "Deployment",
        "Service",
        "ValidatingWebhookConfiguration",
    } <= set(kinds)
    role = next(obj for obj in objects if obj["kind"] == "ClusterRole")
    verbs = ["get", "list", "patch", "watch"]
    assert {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": verbs} in role[
        "rules"
    ]
    chart = by_key(render_chart("website-operator", {}, website_project / "chart"))
    deployment = chart["Deployment", "website-operator", "website-operator"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container.pop("args") == ["--namespaces="]
    assert chart == by_key([obj for obj in objects if obj["kind"] != "Namespace"])


def test_values_of_the_chart_are_rendered(website_project: Path) -> None:
    values = {
        "image": {"repository": "registry.test/website", "tag": "v9", "pullPolicy": "Always"},
        "replicas": 3,
        "namespaces": ["a", "b"],
        "metrics": {"enabled": False},
        "resources": {"requests": {"cpu": "2"}},
    }
    objects = by_key(render_chart("target", values, website_project / "chart"))
    deployment = objects["Deployment", "target", "website-operator"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert deployment["spec"]["replicas"] == 3
    assert (container["image"], container["imagePullPolicy"]) == (
        "registry.test/website:v9",
        "Always",
    )
    assert container["args"] == ["--namespaces=a,b", "--metrics-bind-address=0"]
    assert container["resources"] == {"requests": {"cpu": "2"}}
    bound = {
        key
        for key, obj in objects.items()
        if (obj.get("roleRef") or {}).get("name") == "website-operator"
    }
    assert bound == {
        ("RoleBinding", namespace, "website-operator") for namespace in ("a", "b", "target")
    }
    assert {obj["subjects"][0]["namespace"] for obj in objects.values() if "subjects" in obj} == {
        "target"
    }


async def test_restricted_operator_runs_with_the_permissions_of_the_chart(
    website_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(website_project))
    operator = importlib.import_module("website_operator.operator")
    options_module = importlib.import_module("website_operator.options")
    api = importlib.import_module("website_operator.api")
    manifests = importlib.import_module("website_operator.manifests")
    async with (
        ControlPlane.embedded(crds=manifests.crds()) as plane,
        connect(ClientConfig.for_control_plane(plane), field_manager="admin") as admin,
    ):
        for name in ("target", "a", "b"):
            await admin.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        for obj in render_chart("target", {"namespaces": ["a"]}, website_project / "chart"):
            await admin.create(obj)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        account = NamespacedName("target", "website-operator")
        review = await admin.create_subresource(SERVICE_ACCOUNT, account, "token", request)
        config = ClientConfig.for_control_plane(plane, token=review["status"]["token"])
        options = options_module.Options(
            namespaces=("a",),
            webhook_url=str(free_url()),
            metrics_bind_address="0",
            health_bind_address="0",
        )
        with capture_logs() as lines:
            async with operator.new_manager(
                replace(config, namespace="target"), options
            ) as manager:
                await manager.ready()
                website = {
                    "apiVersion": api.Website.gvk.api_version,
                    "kind": "Website",
                    "metadata": {"name": "w"},
                    "spec": {"message": "hello"},
                }

                async def is_admitted() -> bool:
                    created = await admin.create(
                        {**website, "metadata": {"name": "w", "namespace": "b"}}, dry_run=True
                    )
                    return "configMap" in created["spec"]

                await eventually(is_admitted, "the webhooks are called")
                for namespace in ("b", "a"):
                    await admin.create(
                        {**website, "metadata": {"name": "w", "namespace": namespace}}
                    )
                await wait_for(
                    admin,
                    api.Website,
                    NamespacedName("a", "w"),
                    has_condition("Ready"),
                    timeout=120,
                )
                await admin.delete(api.Website, NamespacedName("a", "w"))
                await wait_for(
                    admin,
                    api.Website,
                    NamespacedName("a", "w"),
                    lambda found: found is None,
                    timeout=120,
                )
                ignored = await admin.get(api.Website, NamespacedName("b", "w"))
                assert ignored is not None
                assert ignored.status.observed_generation == 0
        assert not [
            line
            for line in lines
            if "permission" in line["event"].lower() or "Forbidden" in str(line)
        ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Website"}, "NAME: 'Website': must be a lower-case DNS label"),
        ({"name": "json"}, "NAME: 'json': the Python package json would hide another one"),
        ({"name": "../x"}, "NAME: '../x': must be"),
        ({"name": "a", "kind": "web site"}, "--kind: 'web site': must be a CamelCase word"),
        ({"name": "client-operator"}, "--kind: 'Client': the project needs the name Client"),
        ({"name": "a", "kind": "None"}, "--kind: 'None': the project needs the name None"),
        (
            {"name": "a" * 41},
            "NAME: .*: must be a lower-case DNS label .* of at most 40 characters",
        ),
        ({"name": "a" * 5000}, r"^NAME: '.{83}': must be"),
        ({"name": "a", "kind": "K" * 41}, "--kind: .*: must have at most 40 characters"),
        ({"name": "a", "plural": "x" * 41}, "--plural: .*: must have at most 40 characters"),
        ({"name": "a", "plural": "Mice"}, "--plural: 'Mice': must be a lower-case DNS label"),
        ({"name": "a\n"}, "NAME: "),
        ({"name": "tests"}, "NAME: 'tests': the Python package tests would hide another one"),
        ({"name": "conftest"}, "NAME: 'conftest': the Python package conftest would hide another"),
        ({"name": "a", "group": "x"}, "--group: 'x': must be a domain name"),
        ({"name": "a", "group": "a.b\nc: d"}, "--group: "),
        (
            {"name": "a", "group": "apps.k8s.io"},
            "--group: 'apps.k8s.io': is reserved for Kubernetes",
        ),
    ],
)
def test_invalid_names_are_rejected(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidProject, match=message) as raised:
        Project(**arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "kind",
    ["App", "Class", "List", "Message", "MyConfigMap", "Test", "Operator", "Condition", "Sample"],
)
def test_ordinary_kinds_are_accepted(kind: str) -> None:
    assert Project(name="some-operator", kind=kind).kind == kind


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "Makefile").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    for arguments, code in (
        (["file"], 2),
        (["full"], 2),
        (["website", "full"], 2),
        (["website", "link"], 2),
        (["website", "dangling"], 2),
        (["yaml"], 2),
        (["--", "-operator"], 2),
    ):
        result = CliRunner().invoke(cli, ["new", *arguments])
        assert result.exit_code == code, (arguments, result.output)
        assert len(result.output.splitlines()[-1]) < 200
        assert "Traceback" not in result.output
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "Makefile").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "Makefile",
        "dangling",
        "file",
        "full",
        "link",
    ]


def test_plural_can_be_irregular_and_is_printed_with_the_derived_kind(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    result = CliRunner().invoke(cli, ["new", "field-mouse", str(folder), "--plural", "mice"])
    assert "for the kind FieldMouse (mice.example.com)." in result.output
    crd = yaml.safe_load((folder / "config" / "crd.yaml").read_text())
    assert crd["spec"]["names"]["plural"] == "mice"
    texts = [path.read_text() for path in folder.rglob("*") if path.suffix in (".py", ".yaml")]
    assert not [text for text in texts if "mouses" in text]
    assert 'Rule("example.com", "mice/status", "patch")' in "".join(texts)


def test_invalid_kind_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli, ["new", "website", str(tmp_path / "project"), "--kind", "bad-kind"]
    )
    assert (result.exit_code, result.output) == (
        2,
        "Error: --kind: 'bad-kind': must be a CamelCase word of at most 63 characters\n",
    )
    assert not (tmp_path / "project").exists()


def test_kind_is_derived_from_the_name() -> None:
    project = Project(name="web-site-operator")
    assert (project.kind, project.plural) == ("WebSite", "websites")
    assert any(str(path) == ".github/workflows/tests.yaml" for path in render(project))
