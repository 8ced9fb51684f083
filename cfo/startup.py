"""Process-wide settings that reduce the operator's memory and start time, applied before its modules are loaded.

Some libraries do expensive work at import that the operator never uses. These settings affect the whole process, so
only programs may apply them, never :mod:`cfo.runtime`. The numbers were measured with an idle operator.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

TLS_BUFFER = 32 * 1024
"""The size in bytes of the read buffer of each TLS connection; a TLS record has at most 16 KiB."""

_YOUNG_OBJECTS = 200_000

_ENVIRONMENT_DURING_IMPORTS = {
    # aiohttp loads the system's CAs into its own TLS context (2 MB, 20 ms). Every connection here has its own context
    # (ClientConfig.ssl_context); a connection without one would trust no CA.
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    # Only this extension needs libstdc++ (1 MB). The lists in question are the middlewares of servers, which have one.
    "FROZENLIST_NO_EXTENSIONS": "1",
}

_LIBRARIES = (
    *(
        "aiohttp.web",
        "anyio._backends._asyncio",
        "cryptography.hazmat.primitives.serialization",
        "cryptography.x509",
    ),
    *("msgspec", "prometheus_client", "structlog", "tempfile", "yaml"),
)
"""The libraries to which the settings below apply."""

_HIDDEN_MODULES = (
    "bz2",  # shutil, for archives
    "lzma",
    "rich",  # structlog, for tracebacks (4 MB, 45 ms); the operator prints plain tracebacks
    "structlog.twisted",
)
"""Optional modules that libraries import if they are installed."""

_DEFERRED_MODULES = (
    # aiohttp, for files, forms, WebSockets, traces, its command line, hosts in Unicode, parameters of Content-Type
    *(
        "aiohttp.client_middleware_digest_auth",
        "aiohttp.formdata",
        "aiohttp.multipart",
        "aiohttp.payload_streamer",
    ),
    *("aiohttp.tracing", "aiohttp.web_fileresponse", "aiohttp.web_ws"),
    *("aiohttp._websocket.reader", "aiohttp._websocket.writer", "idna"),
    *(
        "argparse",
        "email.message",
        "email.parser",
        "email.policy",
        "email.utils",
        "html",
        "mimetypes",
        "pickle",
    ),
    # anyio, for sockets and streams
    *("anyio._core._sockets", "anyio._core._streams", "anyio.streams.memory"),
    # attrs, for its newer classes
    *("attr._next_gen", "attr.converters", "attr.filters", "attr.validators"),
    # cryptography, for SSH keys, encryption, and keys of other types
    *("cryptography.hazmat.primitives.serialization.ssh", "cryptography.hazmat.primitives.ciphers"),
    *(
        "cryptography.hazmat.primitives.ciphers.algorithms",
        "cryptography.hazmat.primitives.ciphers.modes",
    ),
    *(
        f"cryptography.hazmat.primitives.asymmetric.{name}"
        for name in ("dh", "mldsa", "mlkem", "x25519", "x448")
    ),
    "cryptography.x509.verification",
    # msgspec, for schemas and other formats
    *("msgspec._json_schema", "msgspec.toml", "msgspec.yaml"),
    # prometheus_client, for its own server and the Pushgateway
    *(
        "gzip",
        "http.server",
        "prometheus_client.asgi",
        "socketserver",
        "urllib.request",
        "wsgiref.simple_server",
    ),
    *("structlog.testing", "structlog.threadlocal"),
)
"""Modules that libraries import for functions that the operator does not call (6 MB, 150 modules, 80 ms).

Names of modules in this list must not be used in ``except`` on the operator's paths.
"""

_DEFERRED_PATTERNS = ("aiohttp._cookie_helpers", "cryptography.x509.name", "yaml.reader")
"""Modules whose patterns are compiled when a method of them is called (15 ms). They use no functions of :mod:`re`."""

_compile = re.compile


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
    gc.set_threshold(_YOUNG_OBJECTS, thresholds[1], 1_000)

    def modules_loaded() -> None:
        gc.freeze()
        gc.set_threshold(*thresholds)

    modules = dict.fromkeys(_HIDDEN_MODULES) | {
        name: _DeferredModule(name) for name in _DEFERRED_MODULES
    }
    modules |= {name: module for name, module in sys.modules.items() if name in modules}
    try:
        # Child processes that are started later do not inherit these variables.
        with (
            _replaced(os.environ, _ENVIRONMENT_DURING_IMPORTS),
            _replaced(sys.modules, modules),
            _replaced(vars(re), {"compile": _compile_later}),
        ):
            for name in _LIBRARIES:
                import_module(name)
        yield modules_loaded
    finally:
        gc.set_threshold(*thresholds)


class _DeferredModule(ModuleType):
    """Replaces a module while others import names from it."""

    def __getattr__(self, name: str) -> _DeferredName:
        if name.startswith("__"):
            raise AttributeError(name)
        return _DeferredName(
            name, (), {"__module__": self.__name__, "_source": (self.__name__, name)}
        )


class _DeferredName(type):
    """Replaces a name of a module, which is imported when the name is called, or an attribute of it is read.

    It is a class because other classes inherit from some of these names. Their first instance gives them the real base.
    """

    _source: tuple[str, str]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__bases__ == (object,):
            return cls._load()(*args, **kwargs)
        cls.__bases__ = tuple(
            base._load() if type(base) is _DeferredName else base for base in cls.__bases__
        )
        return super().__call__(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(cls._load(), name)

    def __instancecheck__(cls, instance: object) -> bool:
        if cls.__bases__ != (object,):
            return super().__instancecheck__(instance)
        return cls._source[0] in sys.modules and isinstance(instance, cls._load())

    def _load(cls) -> Any:
        module, name = cls._source  # a package may change __module__
        return getattr(import_module(module), name)


class _DeferredPattern:
    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(_compile(*self._arguments), name)


def _compile_later(pattern: Any, flags: int = 0) -> Any:
    """Replaces :func:`re.compile` while libraries are imported."""
    is_deferred = sys._getframe(1).f_globals["__name__"] in _DEFERRED_PATTERNS
    return (_DeferredPattern if is_deferred else _compile)(pattern, flags)


@contextmanager
def _replaced(target: MutableMapping[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Replace entries of ``target`` temporarily."""
    before = {name: target[name] for name in values if name in target}
    target.update(values)
    try:
        yield
    finally:
        for name in values:
            del target[name]
        target.update(before)
