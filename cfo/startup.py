"""The operator's process: what is settled for all of it, before its modules are loaded.

Some of what libraries do while they are imported costs much and is never used here. All of this holds for the whole
process, so it is for a program to do, and never for :mod:`cfo.runtime`. The figures are of an idle operator.
"""

from __future__ import annotations

import gc
import os
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["starting"]

TLS_BUFFER = 32 * 1024
"""Bytes that are kept for each TLS connection to read into; a TLS record has at most 16 KiB."""

_YOUNG_OBJECTS = 10_000

_WHILE_LOADING = {
    # aiohttp loads the system's authorities into a TLS context of its own (2 MB, 20 ms). Every connection here brings
    # one (ClientConfig.ssl_context); a connection that did not would trust nobody.
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    # pydantic imports zoneinfo, which looks into the configuration that Python was built with, where to find time
    # zones (0.7 MB): nothing here knows any but UTC.
    "PYTHONTZPATH": "",
}


@contextmanager
def starting() -> Iterator[Callable[[], None]]:
    """For as long as the process runs; yields what to call once its modules are loaded.

    What was loaded stays to the end, so the garbage collector hardly looks at it meanwhile, and never after (some
    70,000 objects).
    """
    SSLProtocol.max_size = TLS_BUFFER  # asyncio has 256 KiB for each of some 25 connections (5.5 MB)
    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, thresholds[1], 1_000)

    def loaded() -> None:
        gc.freeze()
        gc.set_threshold(*thresholds)

    try:
        # structlog takes rich for tracebacks where it is installed (4 MB, 45 ms); ours are plain.
        with _environment(_WHILE_LOADING), _without("rich"):
            import aiohttp  # noqa: F401
            import pydantic.main  # noqa: F401
            import structlog  # noqa: F401
        yield loaded
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def _without(name: str) -> Iterator[None]:
    """While this lasts, a module cannot be imported, as if it were not installed; unless it was imported before."""
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
    """While this lasts, the process has these variables; what it starts afterwards knows nothing of them."""
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
