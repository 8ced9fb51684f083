"""What the end-to-end tests need: a cluster, said to be one for tests, and kubectl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from test.e2e.settings import Settings, unused

FAILED = pytest.StashKey[bool]()


class Cluster:
    """A cluster, through kubectl, with a namespace of the test's own."""

    def __init__(self, namespace: str, settings: Settings) -> None:
        self.namespace = namespace
        self.settings = settings

    def kubectl(self, *arguments: str, stdin: Any = None) -> str:
        """Runs kubectl; an ``AssertionError`` has what it said."""
        done = subprocess.run(
            ["kubectl", "--namespace", self.namespace, *arguments],
            input=json.dumps(stdin) if stdin is not None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, obj: dict[str, Any]) -> None:
        """Applies an object."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=obj)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object, or an empty one."""
        found = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
        return dict(json.loads(found)) if found.strip() else {}

    def until(self, look: Callable[[], Any], what: str, within: float) -> Any:
        """Waits until ``look`` returns something true, for ``within`` seconds."""
        deadline = time.monotonic() + within
        while not (found := look()):
            assert time.monotonic() < deadline, f"did not happen in {within:g} s: {what}"
            time.sleep(1)
        return found

    def save(self, folder: Path) -> None:
        """Writes what tells why a test failed: objects, events, and the log of each container. No Secrets."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("events", "pods", "jobs", "rayclusters", "appwrappers", "workloads"):
            self._write(folder / f"{kind}.yaml", "get", kind, "-o", "yaml")
        found = self._write(folder / "pods.txt", "get", "pods", "-o", "name")
        for pod in found.split() if found else ():
            name = pod.removeprefix("pod/")
            self._write(folder / f"{name}.log", "logs", name, "--all-containers", "--prefix", "--timestamps")

    def _write(self, path: Path, *arguments: str) -> str:
        try:
            said = self.kubectl(*arguments)
        except AssertionError as refused:  # such as of a kind that is not there: the reason belongs to the logs
            path.write_text(str(refused))
            return ""
        path.write_text(said)
        return said


def pytest_report_header() -> list[str]:
    return unused(os.environ)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if not os.environ.get("CODEFLARE_E2E"):
        pytest.skip(
            "CODEFLARE_E2E is not set: these tests need a cluster (make kind-e2e setup-e2e deploy-e2e test-e2e)"
        )
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    name = f"test-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:50].rstrip("-")
    here = Cluster(name, settings)
    subprocess.run(["kubectl", "create", "namespace", name], check=True, capture_output=True)
    try:
        yield here
    finally:
        if request.node.stash.get(FAILED, False):
            folder = (settings.output or tmp_path) / name
            here.save(folder)
            print(f"what the cluster said is in {folder}")
        subprocess.run(["kubectl", "delete", "namespace", name, "--wait=false"], check=False, capture_output=True)
