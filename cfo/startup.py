"""Process-wide settings that reduce the operator's memory and start time, applied before its modules are loaded.

They are settings of Python's garbage collector, environment variables that libraries read, and the size of asyncio's
TLS buffers. They affect the whole process, so only programs may apply them, never :mod:`cfo.runtime`. The gains were
measured with an idle operator.
"""

from __future__ import annotations

import gc
import os
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

TLS_BUFFER: Final = 32 * 1024
"""The size in bytes of the read buffer of each TLS connection; a TLS record has at most 16 KiB."""

_YOUNG_OBJECTS: Final = 200_000
_YOUNG_COLLECTIONS: Final = 1_000

_ENVIRONMENT_OF_AIOHTTP: Final = {
    # aiohttp loads the system's CAs into its own TLS context (2 MB, 20 ms). Every connection here has its own context
    # (ClientConfig.ssl_context); a connection without one would trust no CA.
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    # Only this extension needs libstdc++ (1 MB). The lists in question are the middlewares of servers, which have one.
    "FROZENLIST_NO_EXTENSIONS": "1",
}
"""The environment variables while aiohttp is imported. Child processes that are started later do not inherit them."""


def limit_tls_buffers() -> None:
    """Let asyncio allocate :data:`TLS_BUFFER` bytes for each TLS connection that is opened later, not 256 KiB.

    That saves 5.5 MB of an operator with 25 connections, and 35 MB where the API server is in the same process.
    """
    SSLProtocol.max_size = TLS_BUFFER


@contextmanager
def tune_process() -> Iterator[Callable[[], None]]:
    """Apply the settings until the process ends; yield a function to call when all modules are loaded.

    Loaded modules are never freed, so the garbage collector runs rarely while they load and ignores them (about 70,000
    objects) afterwards.
    """
    limit_tls_buffers()
    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, thresholds[1], _YOUNG_COLLECTIONS)

    def modules_loaded() -> None:
        gc.freeze()
        gc.set_threshold(*thresholds)

    try:
        with _environment(_ENVIRONMENT_OF_AIOHTTP):
            import aiohttp  # noqa: F401 (other modules get it from here)
        yield modules_loaded
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables until the end of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
