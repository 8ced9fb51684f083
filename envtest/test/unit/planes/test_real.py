"""The control plane of real binaries, with scripts in their place: flags, start, readiness, failures, stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from envtest import ControlPlane, RealControlPlane
from envtest.api_client import APIClient
from envtest.planes.real import StartFailed

ETCD = "#!/bin/sh\necho $$ > {folder}/etcd.pid\nexec sleep 1000\n"
MANAGER = """#!/bin/sh
echo $$ > {folder}/manager.pid
printf '%s\\n' "$@" > {folder}/manager.new
mv {folder}/manager.new {folder}/manager.flags
exec sleep 1000
"""
APISERVER = """#!{python}
import http.server, json, ssl, sys

open("{folder}/apiserver.flags", "w").write("\\n".join(sys.argv[1:]))
flags = dict(each[2:].split("=", 1) for each in sys.argv[1:] if "=" in each)
token = open(flags["token-auth-file"]).read().split(",")[0]

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self, document):
        body = json.dumps(document).encode()
        allowed = self.headers["Authorization"] == "Bearer " + token
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.respond({{"status": {{"conditions": [{{"type": "Established", "status": "True"}}]}}}})

    def do_PATCH(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.respond({{}})

    def log_message(self, *_):
        pass

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(flags["tls-cert-file"], flags["tls-private-key-file"])
server = http.server.ThreadingHTTPServer((flags["bind-address"], int(flags["secure-port"])), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
TOYS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "toys.a.b"},
}


def write_program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(text.format(folder=folder, python=sys.executable))
    file.chmod(0o755)


async def test_both_processes_are_started_and_stopped(tmp_path: Path) -> None:
    write_program(tmp_path, "etcd", ETCD)
    write_program(tmp_path, "kube-apiserver", APISERVER)
    async with ControlPlane.real(crds=[TOYS], assets=tmp_path) as plane, APIClient(plane) as api:
        assert (await api.get("/readyz")).code == 200
        assert plane.url in plane.kubeconfig()
        etcd = int((tmp_path / "etcd.pid").read_text())
        os.kill(etcd, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(etcd, 0)


def flags_of(file: Path) -> dict[str, str]:
    return dict(line.removeprefix("--").split("=", 1) for line in file.read_text().splitlines())


async def flags_when_written(file: Path) -> dict[str, str]:
    async with asyncio.timeout(120):
        while True:
            if file.exists():
                return flags_of(file)
            await asyncio.sleep(0.01)


async def test_controllers_run_if_the_folder_has_their_program(tmp_path: Path) -> None:
    for name, text in (
        ("etcd", ETCD),
        ("kube-apiserver", APISERVER),
        ("kube-controller-manager", MANAGER),
    ):
        write_program(tmp_path, name, text)
    async with ControlPlane.real(assets=tmp_path, controllers=("gc", "serviceaccount")) as plane:
        flags = await flags_when_written(tmp_path / "manager.flags")
        assert flags["controllers"].split(",") == [
            "garbage-collector-controller",
            "serviceaccount-controller",
            "serviceaccount-token-controller",
        ]
        assert plane.url in Path(flags["kubeconfig"]).read_text()
        assert Path(flags["kubeconfig"]).stat().st_mode & 0o077 == 0
        assert "BEGIN CERTIFICATE" in Path(flags["root-ca-file"]).read_text()
        assert flags["leader-elect"] == "false"
        api_flags = flags_of(tmp_path / "apiserver.flags")
        assert (
            flags["service-account-private-key-file"]
            == api_flags["service-account-signing-key-file"]
        )
        assert "disable-admission-plugins" not in api_flags
        manager = int((tmp_path / "manager.pid").read_text())
        os.kill(manager, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(manager, 0)


@pytest.mark.parametrize("program", [True, False])
async def test_without_controllers_pods_need_no_service_account(
    tmp_path: Path, program: bool
) -> None:
    """No controllers are requested, or the folder has no program that runs them."""
    programs = {"etcd": ETCD, "kube-apiserver": APISERVER} | (
        {"kube-controller-manager": MANAGER} if program else {}
    )
    for name, text in programs.items():
        write_program(tmp_path, name, text)
    async with ControlPlane.real(
        assets=tmp_path, controllers=() if program else ("gc", "serviceaccount")
    ):
        assert (
            flags_of(tmp_path / "apiserver.flags")["disable-admission-plugins"] == "ServiceAccount"
        )
    assert not (tmp_path / "manager.pid").exists()


async def test_controllers_that_end_are_reported(tmp_path: Path) -> None:
    without_accounts = APISERVER.replace(
        "allowed = ", 'allowed = "default/serviceaccounts" not in self.path and '
    )
    manager = "#!/bin/sh\necho unknown flag\nexit 1\n"
    for name, text in (
        ("etcd", ETCD),
        ("kube-apiserver", without_accounts),
        ("kube-controller-manager", manager),
    ):
        write_program(tmp_path, name, text)
    with pytest.raises(
        StartFailed, match="kube-controller-manager exited with code 1:\nunknown flag"
    ):
        await ControlPlane.real(assets=tmp_path).start()


async def test_missing_binary_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="etcd not found in"):
        await ControlPlane.real(assets=tmp_path).start()


async def test_process_that_exits_at_start_is_reported(tmp_path: Path) -> None:
    write_program(tmp_path, "etcd", ETCD)
    write_program(tmp_path, "kube-apiserver", "#!/bin/sh\necho the flag is wrong\nexit 3\n")
    with pytest.raises(StartFailed, match="kube-apiserver exited with code 3:\nthe flag is wrong"):
        await ControlPlane.real(assets=tmp_path).start()


def test_binaries_are_found_by_environment_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(StartFailed, match="set KUBEBUILDER_ASSETS"):
        ControlPlane.real()
    assert not isinstance(ControlPlane.auto(), RealControlPlane)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert isinstance(ControlPlane.auto(), RealControlPlane)


async def test_killed_program_is_started_again_with_the_same_arguments(tmp_path: Path) -> None:
    write_program(tmp_path, "etcd", ETCD)
    write_program(tmp_path, "kube-apiserver", APISERVER)
    async with ControlPlane.real(assets=tmp_path) as plane, APIClient(plane) as api:
        flags = flags_of(tmp_path / "apiserver.flags")
        first = int((tmp_path / "etcd.pid").read_text())
        for name in ("kube-apiserver", "etcd"):
            await plane.kill_program(name)
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        for name in ("etcd", "kube-apiserver"):
            await plane.start_program(name)
        await plane.wait_ready()
        assert (await api.get("/readyz")).code == 200
        assert flags_of(tmp_path / "apiserver.flags") == flags
        assert flags["etcd-servers"].startswith("http://127.0.0.1:")
        assert int((tmp_path / "etcd.pid").read_text()) != first
        with pytest.raises(ValueError, match="'kubelet': not a program of this control plane"):
            await plane.kill_program("kubelet")


async def test_audit_log_has_each_finished_request(tmp_path: Path) -> None:
    write_program(tmp_path, "etcd", ETCD)
    write_program(tmp_path, "kube-apiserver", APISERVER)
    audit = tmp_path / "audit.log"
    async with ControlPlane.real(assets=tmp_path, audit_log=audit):
        flags = flags_of(tmp_path / "apiserver.flags")
        assert flags["audit-log-path"] == str(audit)
        policy = json.loads(Path(flags["audit-policy-file"]).read_text())
        assert policy["rules"] == [{"level": "Metadata"}]
        assert "ResponseComplete" not in policy["omitStages"]


OWNER = """
import asyncio, pathlib, sys
from envtest import ControlPlane

async def main():
    plane = ControlPlane.real(assets=sys.argv[1], controllers=("gc",))
    await plane.start()
    print(plane.data_dir.parent, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_programs_and_files_are_removed_when_their_owner_is_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    apiserver = APISERVER.replace(
        "import http",
        'import os; open("{folder}/apiserver.pid", "w").write(str(os.getpid()))\nimport http',
        1,
    )
    for name, text in (
        ("etcd", ETCD),
        ("kube-apiserver", apiserver),
        ("kube-controller-manager", MANAGER),
    ):
        write_program(tmp_path, name, text)
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    owner = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    folder = Path((await owner.stdout.readline()).decode().strip())
    await flags_when_written(tmp_path / "manager.flags")
    pids = [
        int((tmp_path / f"{name}.pid").read_text()) for name in ("etcd", "apiserver", "manager")
    ]
    assert folder.is_dir()
    assert all(map(is_running, pids))
    owner.send_signal(number)
    await owner.wait()
    async with asyncio.timeout(120):
        while True:
            if not folder.exists() and not any(map(is_running, pids)):
                return
            await asyncio.sleep(0.01)
