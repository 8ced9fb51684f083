"""Control planes of older Kubernetes versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.configuration.kubernetes_version import LATEST, SUPPORTED, parse_version
from envtest.planes.local_webhooks import free_port
from envtest.programs.flags import KUBE_APISERVER, FlagError
from envtest.programs.folder import write_programs
from envtest.programs.hosted import HostedServers
from envtest.programs.server_options import read_options
from test.support.programs import GoSuite

PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
CONTAINER = {"name": "c", "image": "i"}


@pytest.mark.parametrize("release", SUPPORTED)
async def test_discovery_schemas_and_defaults_of_a_version(release: str, tmp_path: Path) -> None:
    older, disabled = release != LATEST.release, release == "1.34"
    async with (
        ControlPlane.embedded(kubernetes_version=release, controllers=()) as plane,
        APIClient(plane) as client,
    ):
        version = (await client.get("/version")).body
        assert (version["minor"], version["gitVersion"]) == (
            release.partition(".")[2],
            f"v{release}.0",
        )
        assert (await client.get(POLICIES)).code == (404 if older else 200)
        schemas = (await client.get("/openapi/v3/api/v1")).body["components"]["schemas"]
        assert (
            "schedulingGroup" in schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
        ) is not older
        assert not [name for name in schemas if ":" in name]
        assert (await client.get("/openapi/v2")).body["info"]["version"] == release

        spec = {"containers": [CONTAINER], "hostnameOverride": "a.example"}
        created = await client.post(
            f"{PODS}?fieldValidation=Strict", {"metadata": {"name": "a"}, "spec": spec}
        )
        assert (created.code, "hostnameOverride" in created.body["spec"]) == (201, not disabled)
        unknown = {
            "metadata": {"name": "b"},
            "spec": {"containers": [CONTAINER], "schedulingGroup": {}},
        }
        refused = await client.post(f"{PODS}?fieldValidation=Strict", unknown)
        assert ("strict decoding error" in refused.body.get("message", "")) is older
        async with plane.fork() as copy, APIClient(copy) as other:
            assert (await other.get("/version")).body == version
        await plane.snapshot(tmp_path / "snapshot")
    async with (
        ControlPlane.restore(tmp_path / "snapshot") as restored,
        APIClient(restored) as client,
    ):
        assert (await client.get("/version")).body == version


def test_programs_have_a_version(tmp_path: Path) -> None:
    for text in ("", "1.35.2"):
        folder = write_programs(tmp_path / (text or "default"), parse_version(text))
        shown = subprocess.run(
            [folder / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
        )
        assert shown.stdout == f"Kubernetes {parse_version(text)}\n"


async def test_program_serves_its_version(tmp_path: Path) -> None:
    suite = GoSuite(write_programs(tmp_path / "assets", parse_version("1.34.1")), tmp_path)
    try:
        await suite.start_etcd()
        server = await suite.start_api_server()
        assert (await server.request("GET", "/version"))[1]["gitVersion"] == "v1.34.1"
        assert (await server.request("GET", POLICIES))[0] == 404
    finally:
        await suite.close()


async def test_api_servers_of_one_etcd_have_one_version(tmp_path: Path) -> None:
    hosted = HostedServers(tmp_path)
    command = KUBE_APISERVER.parse([f"--cert-dir={tmp_path}", f"--secure-port={free_port()}"])
    try:
        first = await hosted.start(read_options(command, parse_version("1.34")), print)
        with pytest.raises(
            FlagError, match=r"v1\.35\.0: the API servers of this etcd behave like v1\.34\.0"
        ):
            await hosted.start(read_options(command, parse_version("1.35")), print)
        await hosted.stop(first)
    finally:
        await hosted.close()


def test_newest_version_does_not_read_the_data_of_others() -> None:
    code = (
        "import asyncio, envtest, envtest.builtins.catalog as catalog\n"
        "async def main():\n"
        "    async with envtest.ControlPlane.embedded(): pass\n"
        "asyncio.run(main())\n"
        "assert not catalog._differences.cache_info().currsize\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
