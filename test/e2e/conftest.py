"""Fixtures of the end-to-end tests.

They need kubectl and a cluster, and ``CODEFLARE_E2E=1`` to confirm that the cluster may be used for tests.
"""

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

from test.e2e.settings import Settings, unused_variables

FAILED = pytest.StashKey[bool]()


class Cluster:
    """A cluster, accessed with kubectl, and the namespace of one test."""

    def __init__(self, namespace: str, settings: Settings) -> None:
        self.namespace = namespace
        self.settings = settings

    def kubectl(self, *arguments: str, stdin: Any = None) -> str:
        """Run kubectl and return its output. Raises :class:`AssertionError` with its error output."""
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
        """Apply an object server-side."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=obj)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object, or an empty one if it does not exist."""
        output = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
        return dict(json.loads(output)) if output.strip() else {}

    def wait_for(self, condition: Callable[[], Any], description: str, timeout: float) -> Any:
        """Wait until ``condition`` returns a true value, and return it; fail after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            assert time.monotonic() < deadline, f"timed out after {timeout:g} s: {description}"
            time.sleep(1)
        return value

    def save(self, folder: Path) -> None:
        """Write objects, events and the logs of all containers to ``folder``, to diagnose a failed test.

        Secrets are not written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("events", "pods", "jobs", "rayclusters", "appwrappers", "workloads"):
            self._write(folder / f"{kind}.yaml", "get", kind, "-o", "yaml")
        for pod in self._write(folder / "pods.txt", "get", "pods", "-o", "name").split():
            name = pod.removeprefix("pod/")
            self._write(
                folder / f"{name}.log", "logs", name, "--all-containers", "--prefix", "--timestamps"
            )

    def _write(self, path: Path, *arguments: str) -> str:
        try:
            output = self.kubectl(*arguments)
        except AssertionError as error:  # for example an unknown kind: keep the reason
            path.write_text(str(error))
            return ""
        path.write_text(output)
        return output


def pytest_report_header() -> list[str]:
    return unused_variables(os.environ)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
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
        settings = Settings.from_environment(os.environ)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    name = f"test-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:50].rstrip(
        "-"
    )
    running = Cluster(name, settings)
    subprocess.run(["kubectl", "create", "namespace", name], check=True, capture_output=True)
    try:
        yield running
    finally:
        if request.node.stash.get(FAILED, False):
            folder = (settings.output or tmp_path) / name
            running.save(folder)
            print(f"objects, events and logs: {folder}")
        subprocess.run(
            ["kubectl", "delete", "namespace", name, "--wait=false"],
            check=False,
            capture_output=True,
        )
