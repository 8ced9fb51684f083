"""Starts the programs of ``envtest assets`` as controller-runtime does: with its flags and its certificates."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from envtest.formats.certificate_authority import CertificateAuthority
from envtest.planes.local_webhooks import free_port

SECONDS = 20


class Running:
    """A program that was started; ``lines`` are its standard error."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.process = process
        self._errors = errors

    @property
    def errors(self) -> str:
        """The standard error up to now."""
        return self._errors.read_text()

    async def stop(self) -> int:
        """End the program as controller-runtime does; return its exit code."""
        if self.process.returncode is None:
            self.process.terminate()
        code = await asyncio.wait_for(self.process.wait(), SECONDS)
        errors = self.errors if self._errors.exists() else ""
        self._errors.unlink(missing_ok=True)
        assert "Traceback" not in errors, errors
        return code


async def start(*command: str | Path) -> Running:
    """Start a program; its standard error goes to a file."""
    descriptor, name = tempfile.mkstemp(suffix=".log")
    try:
        words = map(str, command)
        process = await asyncio.create_subprocess_exec(
            *words, stdout=subprocess.DEVNULL, stderr=descriptor
        )
    finally:
        os.close(descriptor)
    return Running(process, Path(name))


async def answers(session: aiohttp.ClientSession, url: str, program: Running) -> None:
    """Wait until ``url`` answers 200; fail if the program ends first."""
    async with asyncio.timeout(SECONDS):
        while program.process.returncode is None:
            try:
                async with session.get(url, ssl=False) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.01)
    raise AssertionError(f"the program ended: {program.errors}")


class GoSuite:
    """One ``envtest.Environment`` of controller-runtime: an etcd, and API servers with their own certificates."""

    def __init__(self, assets: Path, folder: Path) -> None:
        self._assets = assets
        self._folder = folder
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self.etcd: Running | None = None
        self._running: list[Running] = []
        self._plain = aiohttp.ClientSession()

    async def start_etcd(self) -> Running:
        """Start etcd on the data folder of this suite, and wait for ``/health``."""
        self.etcd = await start(
            self._assets / "etcd",
            f"--advertise-client-urls={self.etcd_url}",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
            "--unsafe-no-fsync=true",
        )
        self._running.append(self.etcd)
        await answers(self._plain, f"{self.etcd_url}/health", self.etcd)
        return self.etcd

    async def start_api_server(self, *more: str, port: int = 0) -> GoAPIServer:
        """Start an API server, and wait for ``/healthz``; ``more`` replaces or adds flags."""
        port = port or free_port()
        certificates = Path(tempfile.mkdtemp(dir=self._folder))
        serving, clients, accounts = (CertificateAuthority() for _ in range(3))
        pair = serving.server(["localhost", "127.0.0.1"])
        for name, content in (
            ("apiserver.crt", pair.certificate),
            ("apiserver.key", pair.key),
            ("client-cert-auth-ca.crt", clients.pem),
            ("sa-signer.crt", accounts.pair.certificate),
            ("sa-signer.key", accounts.pair.key),
        ):
            (certificates / name).write_bytes(content)
        flags = {
            "allow-privileged": "true",
            "authorization-mode": "RBAC",
            "bind-address": "127.0.0.1",
            "cert-dir": certificates,
            "client-ca-file": certificates / "client-cert-auth-ca.crt",
            "disable-admission-plugins": "ServiceAccount",
            "etcd-servers": self.etcd_url,
            "secure-port": port,
            "service-account-issuer": f"https://127.0.0.1:{port}/",
            "service-account-key-file": certificates / "sa-signer.crt",
            "service-account-signing-key-file": certificates / "sa-signer.key",
            "service-cluster-ip-range": "10.0.0.0/24",
        }
        flags |= dict(flag.removeprefix("--").split("=", 1) for flag in more)
        command = [f"--{name}={value}" for name, value in flags.items()]
        program = await start(self._assets / "kube-apiserver", *command)
        self._running.append(program)
        server = GoAPIServer(program, port, serving, clients, certificates)
        await answers(self._plain, f"{server.url}/healthz", program)
        return server

    async def close(self) -> None:
        """End all programs, the latest first."""
        await self._plain.close()
        for program in reversed(self._running):
            await program.stop()


class GoAPIServer:
    """A running API server, and how users connect to it: with certificates of the CA in ``--client-ca-file``."""

    def __init__(
        self,
        program: Running,
        port: int,
        serving: CertificateAuthority,
        clients: CertificateAuthority,
        folder: Path,
    ) -> None:
        self.program = program
        self.port = port
        self.url = f"https://127.0.0.1:{port}"
        self._serving = serving
        self._clients = clients
        self._folder = folder

    def _context(
        self, user: str, groups: tuple[str, ...], signer: CertificateAuthority | None
    ) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._serving.pem.decode())
        if user:
            pair = (signer or self._clients).client(user, groups)
            file = self._folder / "client.pem"
            file.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(file)
        return context

    def kubeconfig(self) -> Path:
        """Write a kubeconfig of the administrator, with files for the CA and the client certificate."""
        pair = self._clients.client("admin", ("system:masters",))
        contents = {
            "ca.crt": self._serving.pem,
            "admin.crt": pair.certificate,
            "admin.key": pair.key,
        }
        for name, content in contents.items():
            (self._folder / name).write_bytes(content)
        config = {
            "clusters": [
                {"name": "c", "cluster": {"server": self.url, "certificate-authority": "ca.crt"}}
            ],
            "users": [
                {
                    "name": "u",
                    "user": {"client-certificate": "admin.crt", "client-key": "admin.key"},
                }
            ],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = self._folder / "admin.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    @asynccontextmanager
    async def session(
        self, user: str = "admin", *groups: str, signer: CertificateAuthority | None = None
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """Yield an HTTP client with a certificate of ``user``, by default the administrator of envtest."""
        context = self._context(user, groups or ("system:masters",), signer)
        async with aiohttp.ClientSession(
            self.url, connector=aiohttp.TCPConnector(ssl=context)
        ) as session:
            yield session

    async def request(
        self, method: str, path: str, body: Any = None, **more: Any
    ) -> tuple[int, Any]:
        """Send a request as administrator; return the code and the body."""
        async with (
            self.session() as session,
            session.request(method, path, json=body, **more) as response,
        ):
            return response.status, await response.json()
