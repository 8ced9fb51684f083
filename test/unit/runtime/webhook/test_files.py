"""Serving certificates from files: waited for, reloaded when they change, and never used while incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cfo.runtime.objects.unstructured import NamespacedName
from cfo.runtime.pki.rotation import CertificateSet, StoredCertificates, ensure_certificates
from cfo.runtime.webhook.certificates.file_watcher import CertificateFilesWatcher, ClientCAWatcher
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import CertificateMetrics
from cfo.runtime.webhook.options import CertificateFiles, RotatedCertificates

TIMEOUT_SECONDS = 120.0


def create_certificates() -> CertificateSet:
    policy = RotatedCertificates(secret=NamespacedName("ns", "cert"))
    return ensure_certificates(
        StoredCertificates(), policy, ("hooks.ns.svc",), now=datetime.now(UTC)
    )[0]


def write(directory: Path, certificates: CertificateSet) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tls.crt").write_bytes(certificates.pair.certificate)
    (directory / "tls.key").write_bytes(certificates.pair.key)
    (directory / "ca.crt").write_bytes(certificates.bundle)


class Harness:
    """A watcher of a directory, with the certificate that it serves and its metrics."""

    def __init__(self, directory: Path) -> None:
        self.registry = CollectorRegistry()
        self.serving = ServingCertificate(CertificateMetrics(self.registry))
        self.watcher = CertificateFilesWatcher(CertificateFiles(directory=directory), self.serving)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():  # noqa: ASYNC110 (waits for a change of files)
                await asyncio.sleep(0.01)

    async def wait_until_served(self, certificates: CertificateSet) -> None:
        await self.wait_until(lambda: self.serving.pair == certificates.pair)


@asynccontextmanager
async def running_watcher(directory: Path) -> AsyncIterator[Harness]:
    harness = Harness(directory)
    task = asyncio.create_task(harness.watcher.run())
    try:
        yield harness
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_existing_files_are_served(tmp_path: Path) -> None:
    certificates = create_certificates()
    write(tmp_path, certificates)
    async with running_watcher(tmp_path) as harness:
        await harness.wait_until_served(certificates)
        assert harness.watcher.failure == ""
        assert harness.watcher.bundle == certificates.bundle


async def test_files_and_their_directory_may_be_created_later(tmp_path: Path) -> None:
    certificates, directory = create_certificates(), tmp_path / "serving" / "certs"
    async with running_watcher(directory) as harness:
        await harness.wait_until(lambda: "No such file" in harness.watcher.failure)
        assert "tls.crt" in harness.watcher.failure
        assert harness.watcher.bundle is None
        write(directory, certificates)
        await harness.wait_until_served(certificates)
        assert harness.watcher.failure == ""


async def test_symlink_swap_of_the_kubelet_is_noticed(tmp_path: Path) -> None:
    first, second = create_certificates(), create_certificates()
    write(tmp_path / "..2026_1", first)
    (tmp_path / "..data").symlink_to("..2026_1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with running_watcher(tmp_path) as harness:
        await harness.wait_until_served(first)
        write(tmp_path / "..2026_2", second)
        (tmp_path / "..data_tmp").symlink_to("..2026_2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await harness.wait_until_served(second)


async def test_certificate_and_key_that_do_not_match_are_not_served(tmp_path: Path) -> None:
    first, second = create_certificates(), create_certificates()
    write(tmp_path, first)
    async with running_watcher(tmp_path) as harness:
        await harness.wait_until_served(first)
        (tmp_path / "tls.crt").write_bytes(second.pair.certificate)
        await harness.wait_until(
            lambda: "cannot use the serving certificate" in harness.watcher.failure
        )
        assert harness.serving.pair == first.pair
        assert (
            harness.registry.get_sample_value("certwatcher_read_certificate_errors_total") or 0
        ) >= 1
        (tmp_path / "tls.key").write_bytes(second.pair.key)
        await harness.wait_until_served(second)
        assert harness.watcher.failure == ""


async def test_replaced_directory_is_watched(tmp_path: Path) -> None:
    first, second, directory = create_certificates(), create_certificates(), tmp_path / "certs"
    write(directory, first)
    async with running_watcher(directory) as harness:
        await harness.wait_until_served(first)
        write(tmp_path / "new", second)
        directory.rename(tmp_path / "old")
        await harness.wait_until(lambda: bool(harness.watcher.failure))
        (tmp_path / "new").rename(directory)
        await harness.wait_until_served(second)


async def test_client_cas_are_read_and_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "mounted" / "client-ca.crt"
    first, second = create_certificates(), create_certificates()
    serving = ServingCertificate(require_clients=True)
    serving.serve(first.pair)
    watcher = ClientCAWatcher(file, serving)
    harness = Harness(tmp_path)
    task = asyncio.create_task(watcher.run())
    await harness.wait_until(lambda: "No such file" in watcher.failure)
    assert not serving.available.is_set()
    file.parent.mkdir()
    for content, cas in (
        (first.bundle, first.bundle),
        (b"nonsense", first.bundle),
        (second.bundle, second.bundle),
    ):
        file.write_bytes(content)
        await harness.wait_until(lambda: bool(watcher.failure) == (content == b"nonsense"))  # noqa: B023
        await harness.wait_until(lambda: serving._client_cas == cas)  # noqa: B023
        assert serving.available.is_set()
    task.cancel()
    await asyncio.wait([task])
