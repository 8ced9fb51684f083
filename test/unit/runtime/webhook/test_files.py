"""Certificates in files: waited for, followed, and never taken half-written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cfo.runtime.objects import NamespacedName
from cfo.runtime.webhook.certificates.certificate_authority import (
    CertificateSet,
    StoredCertificates,
    ensure_certificates,
)
from cfo.runtime.webhook.certificates.file_watcher import CertificateFilesWatcher
from cfo.runtime.webhook.certificates.serving_certificate import ServingCertificate
from cfo.runtime.webhook.metrics import CertificateMetrics
from cfo.runtime.webhook.options import CertificateFiles, RotatedCertificates

WITHIN = 20.0


def material() -> CertificateSet:
    policy = RotatedCertificates(secret=NamespacedName("ns", "cert"))
    return ensure_certificates(StoredCertificates(), policy, ("hooks.ns.svc",), now=datetime.now(UTC))[0]


def write(folder: Path, one: CertificateSet) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(one.pair.certificate)
    (folder / "tls.key").write_bytes(one.pair.key)
    (folder / "ca.crt").write_bytes(one.bundle)


class Following:
    def __init__(self, folder: Path) -> None:
        self.registry = CollectorRegistry()
        self.serving = ServingCertificate(CertificateMetrics(self.registry))
        self.watcher = CertificateFilesWatcher(CertificateFiles(directory=folder), self.serving)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN):
            while not condition():  # noqa: ASYNC110 (what is waited for is a change of files)
                await asyncio.sleep(0.01)

    async def serves(self, one: CertificateSet) -> None:
        await self.until(lambda: self.serving.pair == one.pair)


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[Following]:
    it = Following(folder)
    task = asyncio.create_task(it.watcher.run())
    try:
        yield it
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_files_that_are_there_are_served(tmp_path: Path) -> None:
    one = material()
    write(tmp_path, one)
    async with following(tmp_path) as it:
        await it.serves(one)
        assert it.watcher.failure == ""
        assert it.watcher.bundle == one.bundle


async def test_files_that_come_later_are_waited_for_even_their_folder(tmp_path: Path) -> None:
    one, folder = material(), tmp_path / "serving" / "certs"
    async with following(folder) as it:
        await it.until(lambda: "No such file" in it.watcher.failure)
        assert "tls.crt" in it.watcher.failure
        assert it.watcher.bundle is None
        write(folder, one)
        await it.serves(one)
        assert it.watcher.failure == ""


async def test_a_swap_as_the_kubelet_does_it_is_followed(tmp_path: Path) -> None:
    first, second = material(), material()
    write(tmp_path / "..2026_1", first)
    (tmp_path / "..data").symlink_to("..2026_1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with following(tmp_path) as it:
        await it.serves(first)
        write(tmp_path / "..2026_2", second)
        (tmp_path / "..data_tmp").symlink_to("..2026_2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await it.serves(second)


async def test_a_pair_that_does_not_belong_together_is_not_taken(tmp_path: Path) -> None:
    first, second = material(), material()
    write(tmp_path, first)
    async with following(tmp_path) as it:
        await it.serves(first)
        (tmp_path / "tls.crt").write_bytes(second.pair.certificate)
        await it.until(lambda: "cannot use the serving certificate" in it.watcher.failure)
        assert it.serving.pair == first.pair
        assert (it.registry.get_sample_value("certwatcher_read_certificate_errors_total") or 0) >= 1
        (tmp_path / "tls.key").write_bytes(second.pair.key)
        await it.serves(second)
        assert it.watcher.failure == ""


async def test_a_folder_that_is_replaced_is_followed(tmp_path: Path) -> None:
    first, second, folder = material(), material(), tmp_path / "certs"
    write(folder, first)
    async with following(folder) as it:
        await it.serves(first)
        write(tmp_path / "new", second)
        folder.rename(tmp_path / "old")
        await it.until(lambda: bool(it.watcher.failure))
        (tmp_path / "new").rename(folder)
        await it.serves(second)
