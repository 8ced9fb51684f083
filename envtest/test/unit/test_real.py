"""The control plane of real binaries, with scripts in their place: start, readiness, failures, stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envtest import ControlPlane, RealControlPlane
from envtest.api_client import APIClient
from envtest.real import StartFailed

ETCD = "#!/bin/sh\necho $$ > {folder}/etcd.pid\nexec sleep 1000\n"
APISERVER = """#!{python}
import http.server, json, ssl, sys

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
TOYS = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "toys.a.b"}}


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


async def test_missing_binary_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="etcd not found in"):
        await ControlPlane.real(assets=tmp_path).start()


async def test_process_that_exits_at_start_is_reported(tmp_path: Path) -> None:
    write_program(tmp_path, "etcd", ETCD)
    write_program(tmp_path, "kube-apiserver", "#!/bin/sh\necho the flag is wrong\nexit 3\n")
    with pytest.raises(StartFailed, match="kube-apiserver exited with code 3:\nthe flag is wrong"):
        await ControlPlane.real(assets=tmp_path).start()


def test_binaries_are_found_by_environment_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(StartFailed, match="set KUBEBUILDER_ASSETS"):
        ControlPlane.real()
    assert not isinstance(ControlPlane.auto(), RealControlPlane)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert isinstance(ControlPlane.auto(), RealControlPlane)
