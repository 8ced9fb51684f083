"""Process-wide settings that reduce the operator's memory and start time, applied before its modules are loaded.

Some libraries do expensive work at import that the operator never uses. These settings affect the whole process, so
only programs may apply them, never :mod:`cfo.runtime`. The numbers were measured with an idle operator.
"""

from __future__ import annotations

import gc
import os
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TLS_BUFFER = 32 * 1024
"""The size in bytes of the read buffer of each TLS connection; a TLS record has at most 16 KiB."""

_YOUNG_OBJECTS = 10_000

_ENVIRONMENT_DURING_IMPORTS = {
    # aiohttp loads the system's CAs into its own TLS context (2 MB, 20 ms). Every connection here has its own context
    # (ClientConfig.ssl_context); a connection without one would trust no CA.
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    # pydantic imports zoneinfo, which loads Python's build configuration to find time zones (0.7 MB). Only UTC is used.
    "PYTHONTZPATH": "",
}


@contextmanager
def tune_process() -> Iterator[Callable[[], None]]:
    """Apply the settings until the process ends; yield a function to call when all modules are loaded.

    Loaded modules are never freed, so the garbage collector runs rarely while they load and ignores them (about 70,000
    objects) afterwards.
    """
    SSLProtocol.max_size = TLS_BUFFER  # asyncio allocates 256 KiB for each of about 25 connections (5.5 MB)
    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, thresholds[1], 1_000)

    def modules_loaded() -> None:
        gc.freeze()
        gc.set_threshold(*thresholds)

    try:
        # structlog imports rich for tracebacks if it is installed (4 MB, 45 ms); the operator prints plain tracebacks.
        with _environment(_ENVIRONMENT_DURING_IMPORTS), _hidden_module("rich"):
            import aiohttp  # noqa: F401
            import pydantic.main  # noqa: F401
            import structlog  # noqa: F401
        yield modules_loaded
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def _hidden_module(name: str) -> Iterator[None]:
    """Make imports of module ``name`` fail as if it were not installed, unless it was imported before."""
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules[name]


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables temporarily; child processes started later do not inherit them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
