"""The programs of ``envtest assets``, started as controller-runtime, jenvtest and ``ControlPlane.real()`` do."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.planes.local_webhooks import free_port
from envtest.programs.folder import write_programs
from test.support.programs import GoSuite, Running, answers, start
from test.support.toys import TOYS

MAPS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
CLOCK = "/envtest/clock"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """The folder with the programs."""
    return write_programs(tmp_path / "assets")


@pytest.fixture
async def suite(assets: Path, tmp_path: Path) -> AsyncIterator[GoSuite]:
    """A suite whose etcd runs."""
    running = GoSuite(assets, tmp_path)
    try:
        await running.start_etcd()
        yield running
    finally:
        await running.close()


async def test_flags_and_certificates_of_controller_runtime(suite: GoSuite) -> None:
    server = await suite.start_api_server("--frobnicate=1")
    assert "unknown flag --frobnicate is ignored" in server.program.errors
    assert (await server.request("POST", MAPS, {"metadata": {"name": "a"}}))[0] == 201
    async with server.session("alice", "team-a") as alice, alice.get(MAPS) as response:
        body = await response.json()
        assert (
            response.status,
            body["message"].startswith('configmaps is forbidden: User "alice"'),
        ) == (403, True)
    async with server.session("") as anonymous, anonymous.get(MAPS) as response:
        assert response.status == 403
    with pytest.raises(aiohttp.ClientError):
        async with server.session(signer=CertificateAuthority()) as stranger, stranger.get(MAPS):
            pass
    # The ServiceAccount plugin is disabled: the pod is created without the account "default".
    assert (await server.request("POST", "/api/v1/namespaces/default/pods", POD))[0] == 201
    await server.request("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    _, created = await server.request(
        "POST", f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 600}}
    )
    token = created["status"]["token"]
    claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["iss"] == f"{server.url}/"
    assert claims["aud"] == [f"{server.url}/"]
    async with server.session("") as robot:
        review = {"spec": {"token": token}}
        headers = {"Authorization": f"Bearer {token}"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with robot.post(path, json={}, headers=headers) as response:
            user = (await response.json())["status"]["userInfo"]["username"]
            assert user == "system:serviceaccount:default:robot"
    _, reviewed = await server.request(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", review
    )
    assert reviewed["status"]["authenticated"] is True


async def test_advertised_address_is_in_the_endpoints_of_the_own_service(suite: GoSuite) -> None:
    endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    local = await suite.start_api_server("--advertise-address=127.0.0.1")
    assert (await local.request("GET", endpoints))[
        0
    ] == 404  # validation refuses loopback addresses
    for address in ("192.0.2.7", "192.0.2.8"):
        server = await suite.start_api_server(f"--advertise-address={address}")
        port = int(server.url.rpartition(":")[2])
        ports = [{"name": "https", "port": port, "protocol": "TCP"}]
        _, found = await server.request("GET", endpoints)
        assert found["metadata"]["labels"] == {"endpointslice.kubernetes.io/skip-mirror": "true"}
        assert found["subsets"] == [{"addresses": [{"ip": address}], "ports": ports}]
        _, listed = await server.request(
            "GET", f"{slices}?labelSelector=kubernetes.io/service-name%3Dkubernetes"
        )
        [found] = listed["items"]
        assert (found["metadata"]["name"], found["addressType"], found["ports"]) == (
            "kubernetes",
            "IPv4",
            ports,
        )
        assert found["endpoints"] == [{"addresses": [address], "conditions": {"ready": True}}]


async def test_api_servers_of_one_etcd_share_objects_and_watches(
    suite: GoSuite, assets: Path
) -> None:
    first = await suite.start_api_server()
    second = await suite.start_api_server(
        "--disable-admission-plugins=ServiceAccount,PodSecurity,NamespaceLifecycle",
        "--service-account-issuer=https://second",
    )
    other = await suite.start_api_server("--etcd-prefix=/other")
    missing = "/api/v1/namespaces/missing/configmaps"
    assert (await first.request("POST", missing, {"metadata": {"name": "a"}}))[0] == 404
    assert (await second.request("POST", missing, {"metadata": {"name": "a"}}))[0] == 201
    async with (
        first.session() as watching,
        watching.get(MAPS, params={"watch": "true"}) as response,
    ):
        assert (await second.request("POST", MAPS, {"metadata": {"name": "shared"}}))[0] == 201
        async with asyncio.timeout(120):
            event = json.loads(await response.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "shared")
        assert (await other.request("GET", f"{MAPS}/shared"))[0] == 404
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert (await first.request("POST", crds, TOYS))[0] == 201
        toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}
        assert (await second.request("POST", "/apis/example.com/v1/namespaces/default/toys", toy))[
            0
        ] == 201
        assert await second.program.stop() == 0
        # The watch of the first API server goes on after the second has ended.
        assert (await first.request("POST", MAPS, {"metadata": {"name": "later"}}))[0] == 201
        async with asyncio.timeout(120):
            event = json.loads(await response.content.readline())
        assert event["object"]["metadata"]["name"] == "later"
    refused = await start(
        assets / "kube-apiserver",
        f"--etcd-servers={suite.etcd_url}",
        f"--secure-port={free_port()}",
        "--service-cluster-ip-range=10.1.0.0/24",
    )
    assert await asyncio.wait_for(refused.process.wait(), 120) == 1
    assert (
        "--service-cluster-ip-range=10.1.0.0/24: the API servers of this etcd use 10.0.0.0/24"
        in refused.errors
    )


async def test_restart_keeps_the_objects(suite: GoSuite) -> None:
    first = await suite.start_api_server()
    _, before = await first.request("POST", MAPS, {"metadata": {"name": "kept"}})
    first.program.process.kill()
    await first.program.process.wait()
    again = await suite.start_api_server(port=first.port)
    assert (await again.request("GET", f"{MAPS}/kept")) == (200, before)
    assert suite.etcd is not None
    assert await suite.etcd.stop() == 0
    await suite.start_etcd()
    # The API server is still running: it serves again, with the objects of the data folder.
    async with aiohttp.ClientSession() as plain:
        await answers(plain, f"{again.url}/healthz", again.program)
    assert (await again.request("GET", f"{MAPS}/kept")) == (200, before)


async def test_clock_is_shared_and_continues_after_a_restart(suite: GoSuite) -> None:
    first = await suite.start_api_server()
    second = await suite.start_api_server()
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default"},
        "reason": "Tested",
    }
    assert (await first.request("POST", EVENTS, event))[0] == 201
    code, moved = await second.request("POST", CLOCK, {"advance": 4000})
    assert (code, moved["offsetSeconds"]) == (200, 4000)
    assert (await first.request("GET", CLOCK))[1]["offsetSeconds"] == 4000
    assert (await first.request("GET", f"{EVENTS}/e"))[0] == 404  # its TTL is one hour
    _, created = await first.request("POST", MAPS, {"metadata": {"name": "later"}})
    assert created["metadata"]["creationTimestamp"] >= moved["now"][:19]
    assert suite.etcd is not None
    assert await suite.etcd.stop() == 0
    await suite.start_etcd()
    async with aiohttp.ClientSession() as plain:
        await answers(plain, f"{first.url}/healthz", first.program)
    assert (await first.request("GET", CLOCK))[1]["offsetSeconds"] == 4000


async def test_programs_replace_the_real_control_plane(assets: Path) -> None:
    async with ControlPlane.real(assets=assets, crds=[TOYS]) as plane, APIClient(plane) as api:
        assert (await api.get("/apis/example.com/v1/toys")).code == 200
        assert (await api.get("/version")).body["gitVersion"].startswith("v1.36")
        keys = json.loads((await api.get("/openid/v1/jwks", headers={"Accept": "*/*"})).body)[
            "keys"
        ]
        assert [key["kty"] for key in keys] == ["RSA"]
        assert (await api.post(ACCOUNTS, {"metadata": {"name": "robot"}})).code == 201
        created = (await api.post(f"{ACCOUNTS}/robot/token", {"spec": {}})).body["status"]["token"]
        response = await api.get("/api", headers={"Authorization": f"Bearer {created}"})
        assert response.code == 200


def owned_by(owner: Any, name: str) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def test_real_control_plane_runs_controllers(assets: Path) -> None:
    async with ControlPlane.real(assets=assets) as plane, APIClient(plane) as api:
        assert (await api.get(f"{ACCOUNTS}/default")).code == 200
        assert (await api.post("/api/v1/namespaces/default/pods", POD)).body["spec"][
            "serviceAccountName"
        ] == "default"
        owner = (await api.post(MAPS, {"metadata": {"name": "owner"}})).body
        assert (await api.post(MAPS, owned_by(owner, "dependent"))).code == 201
        assert (await api.delete(f"{MAPS}/owner")).code == 200

        async def collected() -> bool:
            return (await api.get(f"{MAPS}/dependent")).code == 404

        await until(collected)


async def test_controllers_run_while_their_program_runs(
    suite: GoSuite, assets: Path, tmp_path: Path
) -> None:
    server = await suite.start_api_server()
    kubeconfig = server.kubeconfig()
    command = (assets / "kube-controller-manager", f"--kubeconfig={kubeconfig}")
    first = await start(
        *command, "--controllers=garbage-collector-controller,ttl-controller", "--leader-elect=true"
    )

    async def reports(program: Running, text: str) -> None:
        async def reported() -> bool:
            assert program.process.returncode is None, program.errors
            return text in program.errors

        await until(reported)

    try:
        await reports(first, 'started {"running":["gc"]}')
        assert "envtest does not implement ttl-controller" in first.errors
        second = await start(*command, "--controllers=*")
        try:
            await reports(second, "another client runs the controllers gc")
            assert await first.stop() == 0
            await reports(second, "started")
        finally:
            assert await second.stop() == 0
    finally:
        await first.stop()
    code, owner = await server.request("POST", MAPS, {"metadata": {"name": "owner"}})
    assert code == 201
    assert (await server.request("POST", MAPS, owned_by(owner, "dependent")))[0] == 201
    assert (await server.request("DELETE", f"{MAPS}/owner"))[0] == 200
    assert (await server.request("GET", f"{MAPS}/dependent"))[0] == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"controllers": ["kubelet"]}, "controller 'kubelet': must be one of"),
        ({"controllers": "gc"}, "controllers: must be a list of names"),
        ({"names": []}, "the body must be a JSON object with the fields controllers, ca, signer"),
        ([], "the body must be a JSON object"),
        ({"signer": {"certificate": "x"}}, "signer: must have the fields certificate and key"),
        ({"signer": {"certificate": "x", "key": "y"}}, ""),
    ],
)
async def test_invalid_request_for_controllers_is_rejected(body: Any, message: str) -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        response = await api.post("/envtest/controllers", body)
        assert (response.code, message in response.body["message"]) == (400, True)


async def test_controllers_of_several_clients_settle_and_sign() -> None:
    """The signer is the CA of the flags ``--cluster-signing-*``; ``advance`` waits for the clients that are left."""
    authority, path = (
        CertificateAuthority(),
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    )
    signer = {name: text.decode() for name, text in authority.pair._asdict().items()}
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    request = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    text = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    async with (
        ControlPlane.embedded(controllers=()) as plane,
        APIClient(plane) as api,
        AsyncExitStack() as stack,
    ):
        context = ssl.create_default_context(cadata=plane.ca_pem.decode())
        headers = {"Authorization": f"Bearer {plane.token}"}
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, headers=headers)
        )
        clients = []
        for body in ({"controllers": ["gc"]}, {"controllers": ["csrsigning"], "signer": signer}):
            client = await session.post(f"{plane.url}/envtest/controllers", json=body)
            assert "running" in json.loads(await client.content.readline())
            clients.append(client)
        clients[0].close()

        async def ended() -> bool:
            return (
                await api.post("/envtest/controllers", {"controllers": ["gc", "unknown"]})
            ).code == 400

        await until(ended)
        spec = {
            "request": text,
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        }
        created = (await api.post(path, {"metadata": {"name": "a"}, "spec": spec})).body
        created["status"] = {
            "conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]
        }
        assert (await api.put(f"{path}/a/approval", created)).code == 200
        await plane.advance(0)
        certificate = (await api.get(f"{path}/a")).body["status"]["certificate"]
        issuer = x509.load_pem_x509_certificate(authority.pem)
        x509.load_pem_x509_certificate(base64.b64decode(certificate)).verify_directly_issued_by(
            issuer
        )
        clients[1].close()


async def test_only_administrators_run_controllers() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        body: dict[str, Any] = {"controllers": []}
        response = await api.post(
            "/envtest/controllers", body, headers={"Impersonate-User": "alice"}
        )
        assert response.code == 403


async def test_command_line_of_jenvtest(assets: Path, tmp_path: Path) -> None:
    """Single dashes, values after spaces, a flag without value, and a client CA that is the client's certificate."""
    client_port, port = free_port(), free_port()
    url = f"http://0.0.0.0:{client_port}"
    etcd = await start(
        *(assets / "etcd", "-data-dir", tmp_path / "data", "-wal-dir", tmp_path / "wal"),
        *(
            "--listen-client-urls",
            url,
            "--advertise-client-urls",
            url,
            "--initial-cluster",
            "default=http://localhost",
        ),
    )
    folder = tmp_path / "jenvtest"
    server = await start(
        *(
            assets / "kube-apiserver",
            "--cert-dir",
            folder,
            "--secure-port",
            str(port),
            "--etcd-servers",
            url,
        ),
        *("--authorization-mode", "RBAC", "--service-account-issuer", "https://localhost"),
        *(
            "--disable-admission-plugins",
            "ServiceAccount",
            "--service-cluster-ip-range",
            "10.0.0.0/24",
        ),
        "--allow-privileged",
    )
    async with aiohttp.ClientSession() as session:
        await answers(session, f"https://127.0.0.1:{port}/readyz", server)
    assert (folder / "apiserver.crt").read_bytes().count(b"BEGIN CERTIFICATE") == 2
    assert (folder / "apiserver.key").stat().st_mode & 0o077 == 0
    assert (await server.stop(), await etcd.stop()) == (0, 0)
    assert not (tmp_path / "data" / "envtest.sock").exists()


def test_help_lists_no_insecure_port(assets: Path) -> None:
    for name, listed in (("kube-apiserver", b"--secure-port"), ("etcd", b"--listen-client-urls")):
        output = subprocess.run([assets / name, "--help"], check=True, capture_output=True).stdout
        assert listed in output
        assert b"insecure-port" not in output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--etcd-servers must be specified"),
        (
            ("--etcd-servers=http://127.0.0.1:1", "--oidc-issuer-url=https://a"),
            "does not implement this flag",
        ),
        (("--etcd-servers=https://127.0.0.1:1",), "must be an http URL"),
    ],
)
async def test_command_line_that_cannot_be_used_ends_the_program(
    assets: Path, flags: tuple[str, ...], message: str
) -> None:
    program = await start(assets / "kube-apiserver", *flags)
    assert await asyncio.wait_for(program.process.wait(), 120) == 1
    assert message in program.errors


async def test_second_etcd_cannot_use_the_data_folder(
    suite: GoSuite, assets: Path, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    second = await start(
        assets / "etcd", f"--data-dir={tmp_path / 'etcd'}", f"--listen-client-urls={url}"
    )
    assert await asyncio.wait_for(second.process.wait(), 120) == 1
    assert "is used by another process" in second.errors
    assert (tmp_path / "etcd" / "envtest.sock").stat().st_mode & 0o077 == 0
    await suite.start_api_server()


def test_programs_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\n# another program")
    with pytest.raises(FileExistsError, match="was not written by envtest"):
        write_programs(tmp_path)
    assert not (tmp_path / "kube-apiserver").exists()
    (tmp_path / "etcd").unlink()
    write_programs(tmp_path)
    assert write_programs(tmp_path) == tmp_path
