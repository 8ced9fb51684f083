"""What the end-to-end tests need: a cluster, said to be one for tests, and kubectl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PATIENCE = float(os.environ.get("CODEFLARE_TEST_TIMEOUT_SECONDS", "600"))
RAY_IMAGE = os.environ.get("CODEFLARE_TEST_RAY_IMAGE", "quay.io/modh/ray:2.35.0-py311-cu121")


class Cluster:
    """A cluster, through kubectl, with a namespace of the test's own."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

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

    def until(self, look: Callable[[], Any], what: str) -> Any:
        """Waits until ``look`` returns something true."""
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            assert time.monotonic() < deadline, f"did not happen in {PATIENCE:g} s: {what}"
            time.sleep(1)
        return found


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if not os.environ.get("CODEFLARE_E2E"):
        pytest.skip(
            "CODEFLARE_E2E is not set: these tests need a cluster (make kind-e2e setup-e2e deploy-e2e test-e2e)"
        )
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    name = f"test-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:50].rstrip("-")
    here = Cluster(name)
    subprocess.run(["kubectl", "create", "namespace", name], check=True, capture_output=True)
    try:
        yield here
    finally:
        subprocess.run(["kubectl", "delete", "namespace", name, "--wait=false"], check=False, capture_output=True)
