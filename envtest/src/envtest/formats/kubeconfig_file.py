"""Kubeconfig files of control planes: how they are written, and which of them may be overwritten."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["NAME", "write_kubeconfig"]

NAME = "envtest"
"""The name of the only cluster and the only context in the kubeconfig of a control plane."""

_CONNECT_TIMEOUT = 0.2
"""Seconds after which a control plane, which usually is on this machine, counts as stopped."""

_MAX_SIZE = 64 * 1024
"""Size in bytes above which a file is not one of ours, which have about 2 kB."""


def write_kubeconfig(path: Path, text: str) -> None:
    """Write the kubeconfig ``text`` to ``path``, readable only by its owner.

    Raises FileExistsError, and writes nothing, if ``path`` has content that is not a kubeconfig of a control plane, or
    the kubeconfig of another one that is still running; FileNotFoundError if its folder does not exist.
    """
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"{path}: must be a file in a folder that exists")
    if not _may_overwrite(path):
        raise FileExistsError(
            f"{path}: exists and was not written by a control plane; allowed is a path that does not exist, "
            "or a kubeconfig of a control plane"
        )
    server = _server(path)
    if server and server != _server_of(_parse(text.encode())) and _accepts_connections(server):
        raise FileExistsError(
            f"{path}: is the kubeconfig of the control plane at {server}, which is still running"
        )
    # a device such as /dev/stdout, which must not be replaced
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        # a new file, because an existing one, or the target of a link, can be readable by others
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _may_overwrite(path: Path) -> bool:
    """Return whether no content is lost, or only a kubeconfig to which no user has added another cluster."""
    if not path.is_file():  # absent, or a device such as /dev/stdout
        return True
    size = path.stat().st_size
    return size == 0 or (size <= _MAX_SIZE and _is_own(_parse(path.read_bytes())))


def _parse(data: bytes) -> Mapping[str, Any]:
    from envtest.formats.yaml_codec import load

    try:
        document = load(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _is_own(document: Mapping[str, Any]) -> bool:
    try:
        return document["kind"] == "Config" and all(
            [item["name"] for item in document[part]] == [NAME] for part in ("clusters", "contexts")
        )
    except (TypeError, LookupError):
        return False


def _server(path: Path) -> str:
    """Return the server in the kubeconfig ``path``, which may be overwritten; empty if there is none."""
    return _server_of(_parse(path.read_bytes())) if path.is_file() else ""


def _server_of(document: Mapping[str, Any]) -> str:
    try:
        return str(document["clusters"][0]["cluster"]["server"])
    except (TypeError, LookupError):
        return ""


def _accepts_connections(server: str) -> bool:
    try:
        address = urlsplit(server)
        with socket.create_connection(
            (address.hostname or "", address.port or 443), timeout=_CONNECT_TIMEOUT
        ):
            return True
    except (OSError, ValueError):
        return False
