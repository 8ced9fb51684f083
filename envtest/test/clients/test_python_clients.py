"""The official Python client, kubernetes_asyncio and a kopf operator, in the newest releases on PyPI."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.controllers import AVAILABLE

PROGRAMS = Path(__file__).with_name("programs")
CHECKS = {
    "official_client": ["typed", "watches", "dynamic_client", "custom_objects", "others"],
    "asyncio_client": ["typed", "apply", "dynamic_client"],
}
"""The checks that each program prints when they pass."""
CUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "cups.kopf.example.com"},
    "spec": {
        "group": "kopf.example.com",
        "scope": "Namespaced",
        "names": {"plural": "cups", "singular": "cup", "kind": "Cup"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}

CUP = {
    "apiVersion": "kopf.example.com/v1",
    "kind": "Cup",
    "metadata": {"name": "tea"},
    "spec": {"size": 1},
}


@pytest.fixture
def python(installed: Path) -> Path:
    """Return the interpreter of the environment with the clients."""
    return installed / "python" / "bin" / "python"


@pytest.mark.parametrize("program", CHECKS)
def test_client_passes_all_checks(program: str, python: Path, kubeconfig: Path) -> None:
    done = subprocess.run(
        [python, PROGRAMS / f"{program}.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == CHECKS[program]


@contextmanager
def run_operator(python: Path, kubeconfig: Path, log: Path) -> Iterator[None]:
    """Run the kopf operator, and write its output to ``log``."""
    command = [python, "-m", "kopf", "run", "--namespace=default", PROGRAMS / "kopf_operator.py"]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(120)


async def test_kopf_operator_handles_the_life_of_an_object(python: Path, tmp_path: Path) -> None:
    async with (
        ControlPlane.embedded(controllers=tuple(AVAILABLE)) as plane,
        APIClient(plane) as api,
    ):
        await plane.install_crds(CUPS)
        plane.kubeconfig(tmp_path / "kubeconfig")
        log = tmp_path / "log"
        cups = "/apis/kopf.example.com/v1/namespaces/default/cups"
        with run_operator(python, tmp_path / "kubeconfig", log):
            async with api.watch(cups) as events, asyncio.timeout(120):
                await api.post(cups, CUP)
                status = {}
                while not (status.get("create") and status.get("ticked")):
                    status = (await events.event())["object"].get("status") or {}
                assert status["create"] == {"made": True}
                assert status["retries"] == 1
                child = await api.get("/api/v1/namespaces/default/configmaps/tea-child")
                (owner,) = child.body["metadata"]["ownerReferences"]
                assert (owner["kind"], owner["name"], owner["controller"]) == ("Cup", "tea", True)
                await api.merge(f"{cups}/tea", {"spec": {"size": 2}})
                while not (status.get("size") == "1-2" and status.get("updated")):
                    status = (await events.event())["object"].get("status") or {}
                await api.delete(f"{cups}/tea")
                while (await events.event())["type"] != "DELETED":
                    pass
            await api.until("/api/v1/namespaces/default/configmaps/tea-child", 404)
        printed = log.read_text()
        assert "daemon stopped tea" in printed
        assert "deleted tea" in printed
