"""exec, attach, logs and port-forward of pods in a scenario, with kubectl and with the channels of other clients."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import pytest

from envtest import ControlPlane, User
from envtest.api_client import APIClient
from envtest.planes.plane import EmbeddedControlPlane

KUBECTL = shutil.which("kubectl") or ""
PODS = "/api/v1/namespaces/default/pods"
needs_kubectl = pytest.mark.skipif(not KUBECTL, reason="kubectl is not on the PATH")


class Output(NamedTuple):
    code: int
    out: str
    err: str


class Setup(NamedTuple):
    plane: EmbeddedControlPlane
    api: APIClient
    config: Path

    async def start(self, *arguments: str, **variables: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (KUBECTL, "--kubeconfig", str(self.config), *arguments)
        home = {"HOME": str(self.config.parent), **variables}
        return await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=home
        )

    async def kubectl(self, *arguments: str, stdin: bytes = b"", **variables: str) -> Output:
        process = await self.start(*arguments, **variables)
        async with asyncio.timeout(120):
            out, err = await process.communicate(stdin)
        return Output(process.returncode or 0, out.decode(), err.decode())


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello " + await reader.readline())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    server = await asyncio.start_server(_greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rule = {
        "match": {"name": "web"},
        "exec": [
            {"command": ["ls", "*"], "stdout": "a\nb\n"},
            {"command": ["false"], "stderr": "no\n", "exitCode": 3},
            {"command": ["cat"], "echo": True},
        ],
        "attach": {"stdout": "attached\n"},
        "logs": {"*": ["one", "two", {"after": 60, "text": "three"}]},
        "previousLogs": {"*": ["before"]},
        "ports": {"8080": f"127.0.0.1:{port}"},
    }
    crash = {
        "match": {"name": "crash"},
        "containers": {"*": [{"after": 0, "exitCode": 1}]},
        "previousLogs": {"*": ["boom"]},
    }
    scenario = {"pods": [rule, crash]}
    async with (
        ControlPlane.embedded(scenario=scenario, controllers=("gc",)) as plane,
        APIClient(plane) as api,
    ):
        for name in ("web", "crash"):
            spec = {"containers": [{"name": "main", "image": "i"}]}
            await api.post(
                PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
            )
        await plane.advance(0)
        config = tmp_path / "kubeconfig"
        plane.kubeconfig(config)
        yield Setup(plane, api, config)
    server.close()


@needs_kubectl
async def test_attach_without_an_answer_is_an_error(setup: Setup) -> None:
    spec = {"containers": [{"name": "main", "image": "i"}]}
    await setup.api.post(PODS, {"metadata": {"name": "plain"}, "spec": spec})
    await setup.plane.advance(0)
    attached = await setup.kubectl("attach", "plain")
    assert attached.code != 0
    assert "envtest: the scenario has no answer to attach for container main" in attached.err


@needs_kubectl
async def test_kubectl_exec_and_attach(setup: Setup) -> None:
    assert await setup.kubectl("exec", "web", "--", "ls", "/") == (0, "a\nb\n", "")
    failed = await setup.kubectl("exec", "web", "--", "false")
    assert failed == (3, "", "no\ncommand terminated with exit code 3\n")
    text = b"line\n" * 20_000
    assert (await setup.kubectl("exec", "-i", "web", "--", "cat", stdin=text)).out == text.decode()
    spdy = await setup.kubectl(
        "exec", "-i", "web", "--", "cat", stdin=text, KUBECTL_REMOTE_COMMAND_WEBSOCKETS="false"
    )
    assert spdy.out == text.decode()
    unknown = await setup.kubectl("exec", "web", "--", "rm", "x")
    assert (unknown.code, unknown.err.splitlines()[0]) == (
        127,
        "envtest: the scenario has no answer to this command: rm x",
    )
    assert (await setup.kubectl("attach", "web")).out == "attached\n"
    crashed = await setup.kubectl("exec", "crash", "--", "ls", "/")
    assert 'container not found ("main")' in crashed.err

    @setup.plane.scenario.on_exec(labels={"app": "web"})
    async def answer(call: Any) -> int:
        assert (call.pod["metadata"]["name"], call.container) == ("web", "main")
        await call.write(f"{call.command} {(await call.read()).decode()}")
        await call.write_error("done")
        return 7

    answered = await setup.kubectl("exec", "-i", "web", "--", "do", "it", stdin=b"input")
    assert answered == (7, "['do', 'it'] input", "donecommand terminated with exit code 7\n")


@needs_kubectl
async def test_kubectl_logs(setup: Setup) -> None:
    assert (await setup.kubectl("logs", "web")).out == "one\ntwo\n"
    await setup.plane.advance(61)
    setup.plane.scenario.log("default", "web", "four")
    assert (await setup.kubectl("logs", "web", "--tail=2")).out == "three\nfour\n"
    assert (await setup.kubectl("logs", "web", "--since=30s")).out == "three\nfour\n"
    stamped = (await setup.kubectl("logs", "web", "--timestamps", "--limit-bytes=35")).out
    assert stamped[10] == "T"
    assert stamped.endswith("Z one\n")
    assert (await setup.kubectl("logs", "crash", "-p")).out == "boom\n"
    missing = await setup.kubectl("logs", "web", "-p")
    assert 'previous terminated container "main" in pod "web" not found' in missing.err

    process = await setup.start("logs", "web", "-f", "--tail=1")
    assert process.stdout is not None
    async with asyncio.timeout(120):
        assert await process.stdout.readline() == b"four\n"
        setup.plane.scenario.log("default", "web", "five")
        assert await process.stdout.readline() == b"five\n"
        await setup.api.delete(f"{PODS}/web")
        assert await process.wait() == 0, "the log ends with the pod"


@needs_kubectl
@pytest.mark.parametrize("websockets", ["true", "false"])
async def test_kubectl_port_forward(setup: Setup, websockets: str) -> None:
    process = await setup.start(
        "port-forward", "pod/web", ":8080", ":81", KUBECTL_PORT_FORWARD_WEBSOCKETS=websockets
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            ports: dict[str, int] = {}
            while len(ports) < 2:
                line = (await process.stdout.readline()).decode().split()
                ports[line[-1]] = int(line[2].rpartition(":")[2])
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", ports["8080"])
                writer.write(b"you\n")
                assert await reader.read() == b"hello you\n"
                writer.close()
                await writer.wait_closed()
            _, writer = await asyncio.open_connection("127.0.0.1", ports["81"])
            while b"connection refused" not in await process.stderr.readline():
                pass
            writer.close()
            await writer.wait_closed()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


@needs_kubectl
async def test_kubectl_drain_respects_budgets(tmp_path: Path) -> None:
    nodes = [{"name": "a"}, {"name": "b"}]
    controllers = ("gc", "replicaset", "disruption")
    async with (
        ControlPlane.embedded(scenario={"nodes": nodes}, controllers=controllers) as plane,
        APIClient(plane) as api,
    ):
        selector = {"matchLabels": {"app": "web"}}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        spec = {"replicas": 4, "selector": selector, "template": template}
        await api.post(
            "/apis/apps/v1/namespaces/default/replicasets",
            {"metadata": {"name": "web"}, "spec": spec},
        )
        budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 2, "selector": selector}}
        await api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        await plane.advance(0)
        setup = Setup(plane, api, tmp_path / "kubeconfig")
        plane.kubeconfig(setup.config)
        drained = await setup.kubectl("drain", "a")
        assert drained.code == 0, drained.err
        assert drained.out.count("evicted") == 2
        await plane.advance(0)
        pods = (await api.get(PODS)).body["items"]
        assert [pod["spec"]["nodeName"] for pod in pods] == ["b"] * 4
        status = (await api.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/b")).body[
            "status"
        ]
        assert (status["disruptionsAllowed"], status["currentHealthy"], status["expectedPods"]) == (
            2,
            4,
            4,
        )
        assert "disruptedPods" not in status


class Socket:
    """A WebSocket to a subresource of the pod ``web``, as the clients for Python and JavaScript open it."""

    def __init__(
        self,
        plane: EmbeddedControlPlane,
        subresource: str,
        protocol: str,
        query: list[tuple[str, str]],
        *,
        token: str = "",
    ) -> None:
        self._plane, self._query, self._protocol = plane, query, protocol
        self._token = token or plane.token
        self._url = f"{plane.url}{PODS}/web/{subresource}"

    async def __aenter__(self) -> aiohttp.ClientWebSocketResponse:
        context = ssl.create_default_context(cadata=self._plane.ca_pem.decode())
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))
        headers = {"Authorization": f"Bearer {self._token}"}
        protocols = [self._protocol]
        try:
            return await self._session.ws_connect(
                self._url, params=self._query, headers=headers, protocols=protocols
            )
        except aiohttp.WSServerHandshakeError:
            await self._session.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()


async def channels(socket: aiohttp.ClientWebSocketResponse) -> Mapping[int, bytes]:
    """Read until the server closes the connection; return the bytes of each channel."""
    found: dict[int, bytes] = {}
    async with asyncio.timeout(120):
        async for message in socket:
            if message.type == aiohttp.WSMsgType.TEXT:
                number, data = int(message.data[0]), base64.b64decode(message.data[1:])
            else:
                number, data = message.data[0], message.data[1:]
            found[number] = found.get(number, b"") + data
    return found


def command(*arguments: str, **flags: str) -> list[tuple[str, str]]:
    return [*(("command", each) for each in arguments), *flags.items()]


async def test_channels_of_exec(setup: Setup) -> None:
    query = command("false", stdout="true", stderr="true")
    async with Socket(setup.plane, "exec", "v4.channel.k8s.io", query) as socket:
        found = await channels(socket)
    assert (found[1], found[2]) == (b"", b"no\n")
    status = orjson.loads(found[3])
    assert (status["reason"], status["details"]["causes"][0]["message"]) == ("NonZeroExitCode", "3")
    async with Socket(
        setup.plane, "exec", "v5.channel.k8s.io", command("cat", stdin="1", stdout="1")
    ) as socket:
        await socket.send_bytes(b"\0typed")
        await socket.send_bytes(b"\xff\0")  # closes stdin
        found = await channels(socket)
    assert (found[1], orjson.loads(found[3])["status"]) == (b"typed", "Success")
    async with Socket(
        setup.plane, "exec", "base64.channel.k8s.io", command("ls", "x", stdout="1")
    ) as socket:
        found = await channels(socket)
    assert found == {1: b"a\nb\n", 3: b""}, "before v4, success is an empty error channel"


async def test_channels_of_port_forward(setup: Setup) -> None:
    async with Socket(
        setup.plane, "portforward", "v4.channel.k8s.io", [("ports", "8080")]
    ) as socket:
        await socket.send_bytes(b"\0you\n")
        found = await channels(socket)
    port = (8080).to_bytes(2, "little")
    assert found == {0: port + b"hello you\n", 1: port}

    @setup.plane.scenario.on_port_forward(name="web")
    async def answer(call: Any) -> None:
        await call.write(f"{call.port}: {(await call.read()).decode()}")

    async with Socket(setup.plane, "portforward", "v4.channel.k8s.io", [("ports", "5")]) as socket:
        await socket.send_bytes(b"\0ping")
        assert (await channels(socket))[0][2:] == b"5: ping"


async def test_connections_end_with_the_plane(setup: Setup) -> None:
    started = asyncio.get_running_loop().time()
    async with (
        setup.plane.fork() as copy,
        Socket(copy, "exec", "v5.channel.k8s.io", command("cat", stdin="1", stdout="1")) as socket,
    ):
        await socket.send_bytes(b"\0open")
        while (await socket.receive()).data != b"\1open":
            pass
        await copy.stop()
        assert await channels(socket) == {}
    assert asyncio.get_running_loop().time() - started < 10


async def test_requests_that_cannot_be_connected(setup: Setup) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v9"}
    exec_path = f"{PODS}/web/exec"
    for path, query, headers, code, message in (
        (
            exec_path,
            {"stdout": "1"},
            {},
            400,
            "you must specify at least 1 command for the container",
        ),
        (
            exec_path,
            {"command": "x"},
            {},
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        (exec_path, {"command": "x", "stdout": "1"}, {}, 400, "Upgrade request required"),
        (
            exec_path,
            {"command": "x", "stdout": "1"},
            upgrade,
            403,
            "unable to upgrade: unable to negotiate protocol",
        ),
    ):
        response = await setup.api.post(path, {}, query=query, headers=headers)
        assert (response.code, response.body["message"][: len(message)]) == (code, message)
    await setup.api.merge(
        "/api/v1/nodes/envtest/status",
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    )
    unreachable = await setup.api.get(f"{PODS}/web/log")
    assert (unreachable.code, "i/o timeout" in unreachable.body["message"]) == (500, True)


@pytest.mark.parametrize(("version", "allowed"), [("1.34", True), ("1.36", False)])
async def test_permission_to_get_does_not_open_a_connection(version: str, *, allowed: bool) -> None:
    rule = {
        "apiGroups": [""],
        "resources": ["pods/exec", "pods/attach", "pods/portforward"],
        "verbs": ["get"],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    scenario = {"pods": [{"exec": [{"stdout": "done"}]}]}
    plane = ControlPlane.embedded(scenario=scenario, kubernetes_version=version, controllers=())
    async with plane, APIClient(plane) as api:
        plane.add_user("reader", User("reader"))
        await api.post(f"{rbac}/clusterroles", {"metadata": {"name": "reader"}, "rules": [rule]})
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
        binding = {"metadata": {"name": "reader"}, "roleRef": ref, "subjects": [subject]}
        await api.post(f"{rbac}/clusterrolebindings", binding)
        await api.post(
            PODS,
            {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "i"}]}},
        )
        await plane.advance(0)
        for subresource, query in (
            ("exec", command("ls", stdout="1")),
            ("portforward", [("ports", "1")]),
        ):
            opened = Socket(plane, subresource, "v4.channel.k8s.io", query, token="reader")
            if not allowed:
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await opened.__aenter__()
                continue
            async with opened as socket:
                assert await channels(socket)
