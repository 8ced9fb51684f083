"""Settings of the whole process: in effect while modules are loaded, and restored afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
from asyncio.sslproto import SSLProtocol
from typing import Final

import pytest

from cfo.startup import TLS_BUFFER, tune_process

_PROGRAM: Final = """
import os
from cfo.startup import tune_process

os.environ["SSL_CERT_DIR"] = "/certificates"
before = dict(os.environ)
with tune_process():
    assert dict(os.environ) == before
    import aiohttp.connector
    import frozenlist

    print(aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"])
    print(frozenlist.FrozenList is frozenlist.PyFrozenList)
"""


@pytest.fixture(autouse=True)
def restored_tls_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the size of the TLS buffers of this process after each test."""
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)


def test_environment_saves_memory_and_is_restored() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["0", "True"]


def test_garbage_collector_ignores_loaded_modules_and_has_its_thresholds_again() -> None:
    thresholds = gc.get_threshold()
    try:
        with tune_process() as modules_loaded:
            assert gc.get_threshold()[0] > thresholds[0]
            modules_loaded()
            assert gc.get_threshold() == thresholds
            assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_thresholds_are_restored_when_loading_fails() -> None:
    thresholds = gc.get_threshold()
    with pytest.raises(ImportError), tune_process():
        raise ImportError
    assert gc.get_threshold() == thresholds


def test_tls_buffers_are_limited() -> None:
    with tune_process():
        assert SSLProtocol.max_size == TLS_BUFFER
