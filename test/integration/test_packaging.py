"""The wheel, installed into an empty environment, away from the source tree, for somebody with few rights."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cfo.manifests.workload import ENTRY_POINT
from cfo.version import __version__
from test.support.operator_process import PLAIN, Operator, configure
from test.support.raycluster_environment import VANILLA_CRDS, eventually, ray_cluster, start_environment

ROOT = Path(__file__).parents[2]
NOBODY = 65532


@pytest.fixture(scope="module", autouse=True)
def _no_source_tree() -> Iterator[None]:
    """A path of modules may name a source tree, and pip would take that for an installation."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what is under version control or will be."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "cfo", source / "cfo", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and ("Could not find a version" in done.stderr or "No matching distribution" in done.stderr):
        pytest.skip("the build backend cannot be had here")
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """An environment with the wheel alone; the dependencies are those of this one."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="cfo-installed-") as name:  # one that other users may enter
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
        (mine,) = (Path(path) for path in sys.path if path.endswith("site-packages") and str(sys.prefix) in path)
        (packages / "dependencies.pth").write_text(f"{mine}\n")
        yield folder / "venv"


def test_the_wheel_holds_all_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "cfo").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts
    }
    assert data <= names
    assert {name.split("/")[0] for name in names} == {"cfo", f"cfo-{__version__}.dist-info"}


def test_every_command_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    def said(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for command in (["version"], ["config", "default"], ["manifests"], ["run", "--help"]):
        assert said(installed / "bin" / "cfo", *command)
    assert str(installed) in said(installed / "bin" / "python", "-c", "import cfo; print(cfo.__file__)")


def _without_rights(installed: Path) -> list[str]:
    """``cfo`` as root runs it for user 65532; where that one cannot reach the interpreter, as root with no power."""
    program = str(installed / "bin" / "cfo")
    if os.geteuid() != 0:
        return [program]
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("setpriv is not installed: root could write everywhere")
    powerless = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    as_nobody = [*powerless, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program]
    reachable = subprocess.run([*as_nobody, "version"], capture_output=True, check=False).returncode == 0
    return as_nobody if reachable else [*powerless, program]


async def test_it_runs_for_somebody_without_rights_who_can_write_nowhere(installed: Path, tmp_path: Path) -> None:
    async with start_environment(*VANILLA_CRDS) as there:
        await configure(there, {"config.yaml": yaml.safe_dump(PLAIN)})
        await there.create_namespace()
        kubeconfig = json.loads(json.dumps(yaml.safe_load(there.plane.kubeconfig())))
        folder = installed.parent / "readonly"
        folder.mkdir()
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        (folder / "kubeconfig").chmod(0o444)
        folder.chmod(0o555)
        process = await asyncio.create_subprocess_exec(
            *(*_without_rights(installed), "run", "--kubeconfig", folder / "kubeconfig", "--log-format", "json"),
            env={"NAMESPACE": "default", "HOME": str(folder), "PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
            cwd=folder,
            stderr=asyncio.subprocess.PIPE,
        )
        running = Operator(process)
        try:
            await running.ready()
            await there.create(ray_cluster())

            async def look() -> bool:
                return bool(await there.children())

            await eventually(look, "children of the RayCluster")
            process.terminate()
            assert await running.exit_code() == 0, running.output
        finally:
            if process.returncode is None:
                process.kill()
                await running.exit_code()


def test_the_image_is_as_the_deployment_expects_it(installed: Path, tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert f'ENTRYPOINT ["{ENTRY_POINT}"]' in final
    assert f"COPY image/manager {ENTRY_POINT}\n" in final
    assert f"USER {NOBODY}:{NOBODY}\n" in final
    assert "RUN" not in final  # nothing is compiled or fetched there
    assert "PYTHONPYCACHEPREFIX=/opt/pyc python -m compileall" in text  # neither is anything when it starts
    assert "PYTHONPYCACHEPREFIX=/opt/pyc " in final
    assert "COPY --from=build /opt/pyc /opt/pyc\n" in final
    entry = tmp_path / "manager"
    entry.write_text((ROOT / "image" / "manager").read_text().replace("/opt/cfo", str(installed)))
    entry.chmod(0o755)
    assert os.access(ROOT / "image" / "manager", os.X_OK)
    done = subprocess.run([entry, "--help"], capture_output=True, text=True, check=True)
    assert "Run the operator until SIGTERM or SIGINT" in done.stdout
    copied = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert all((ROOT / name).exists() for name in copied)


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (make image-lint brings it)")
    files = ["Dockerfile", "bundle.Dockerfile", "catalog.Dockerfile"]
    done = subprocess.run([hadolint, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
