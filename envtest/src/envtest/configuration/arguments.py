"""Checks of the arguments of control planes: a wrong one is reported by its name when the control plane is created."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = [
    "checked_flag",
    "checked_gates",
    "checked_host",
    "checked_path",
    "checked_port",
    "checked_query",
    "checked_seconds",
    "checked_server_port",
    "checked_sources",
    "checked_string",
    "checked_token",
    "optional_path",
]

_MAX_PORT: Final = 65535
_MAX_HOST: Final = 64
"""How many characters the common name of a certificate has at most."""

_HOST: Final = re.compile(r"[A-Za-z0-9_.:-]+")
_SOURCE: Final = "the path of a file or folder, or an object as a mapping"


def optional_path(name: str, value: Path | str | None) -> Path | None:
    """Return the path of the argument ``name``; ``None`` if it was not given. Raises TypeError, ValueError."""
    return None if value is None else checked_path(name, value)


def checked_path(name: str, value: Path | str) -> Path:
    """Return a path. Raises TypeError; ValueError for an empty string, which would be the working directory."""
    if not isinstance(value, str | Path):
        raise TypeError(f"{name}: {value!r}: must be a path")
    if value == "":
        raise ValueError(f"{name}: must not be empty")
    return Path(value)


def checked_string(name: str, value: str) -> str:
    """Return a string that is not empty. Raises TypeError, ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r}: must be a string")
    if not value:
        raise ValueError(f"{name}: must not be empty")
    return value


def checked_flag(name: str, value: bool) -> bool:
    """Return a boolean. Raises TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {value!r}: must be True or False")
    return value


def checked_token(token: str) -> str:
    """Return a bearer token. Errors do not contain it.

    Raises TypeError if it is not a string, ValueError for one that no request can contain.
    """
    if not isinstance(token, str):
        raise TypeError(f"token: a {type(token).__name__}: must be a string")
    if not token or not token.isprintable() or " " in token:
        raise ValueError("token: must not be empty, or contain spaces or control characters")
    return token


def checked_host(host: str) -> str:
    """Return an address or name to listen on, which a certificate can contain. Raises TypeError, ValueError."""
    checked_string("host", host)
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        raise ValueError(
            f"host: {host[:_MAX_HOST]!r}: must be an IP address or a name of this machine, "
            f"with at most {_MAX_HOST} characters"
        )
    return host


def checked_port(port: int) -> int:
    """Return a port to listen on. Raises TypeError, ValueError."""
    return _checked_port(port, 0, "0, which selects a free port,")


def checked_server_port(port: int) -> int:
    """Return the port of a server. Raises TypeError, ValueError."""
    return _checked_port(port, 1, "1")


def _checked_port(port: int, lowest: int, shown: str) -> int:
    allowed = f"must be an integer from {shown} to {_MAX_PORT}"
    if not isinstance(port, int) or isinstance(port, bool):
        raise TypeError(f"port: {port!r}: {allowed}")
    if not lowest <= port <= _MAX_PORT:
        raise ValueError(f"port: {port}: {allowed}")
    return port


def checked_seconds(name: str, seconds: float) -> float:
    """Return a duration. Raises TypeError, ValueError."""
    allowed = "must be a number of seconds, 0 or more"
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{name}: {seconds!r}: {allowed}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name}: {seconds}: {allowed}")
    return seconds


def checked_query(query: Mapping[str, object] | None) -> dict[str, str | list[str]]:
    """Return the parameters of a request; a list is a parameter that is repeated. Raises TypeError."""
    if query is None:
        return {}
    if not isinstance(query, Mapping):
        raise TypeError(f"query: {query!r}: must be a mapping of names to strings")
    parameters: dict[str, str | list[str]] = {}
    for name, value in query.items():
        if not isinstance(name, str):
            raise TypeError(f"query: {name!r}: the name of a parameter must be a string")
        if isinstance(value, list | tuple):
            parameters[name] = [_parameter(name, each) for each in value]
        else:
            parameters[name] = _parameter(name, value)
    return parameters


def _parameter(name: str, value: object) -> str:
    """Return the value of a parameter. Python's spelling of a boolean or a number can differ from the server's."""
    if isinstance(value, bool):
        raise TypeError(
            f"query: {name}: {value!r}: must be a string, such as {str(value).lower()!r}"
        )
    if not isinstance(value, str | int):
        raise TypeError(f"query: {name}: {value!r}: must be a string or an integer")
    return str(value)


def checked_gates(gates: Mapping[str, bool] | None) -> Mapping[str, bool]:
    """Return feature gates; an empty mapping if they were not given. Raises TypeError."""
    if gates is None:
        return {}
    if not isinstance(gates, Mapping):
        raise TypeError(f"feature_gates: {gates!r}: must be a mapping of names to true or false")
    for name, is_on in gates.items():
        if not isinstance(is_on, bool):
            raise TypeError(f"feature_gates: {name}: {is_on!r}: must be true or false")
    return gates


def checked_sources(name: str, sources: Iterable[Any]) -> list[Any]:
    """Return a list of manifests.

    Raises TypeError for a single file, folder or object, whose parts would be the sources, and for anything else that
    :data:`envtest.formats.manifests.Manifests` does not allow.
    """
    allowed = f"must be a list, each item {_SOURCE}"
    if isinstance(sources, str | bytes | Path):
        raise TypeError(f"{name}: {sources!r}: {allowed}; for one, [{str(sources)!r}]")
    if isinstance(sources, Mapping) or not isinstance(sources, Iterable):
        raise TypeError(f"{name}: of type {type(sources).__name__}: {allowed}")
    found = list(sources)
    for source in found:
        if not isinstance(source, str | Path | Mapping):
            raise TypeError(f"{name}: {source!r}: must be {_SOURCE}")
    return found
