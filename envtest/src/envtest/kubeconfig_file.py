"""Kubeconfig files of control planes: how they are written, and which of them may be overwritten."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["NAME", "write_kubeconfig"]

NAME = "envtest"
"""The name of the only cluster and the only context in the kubeconfig of a control plane."""

_MAX_SIZE = 64 * 1024
"""Size in bytes above which a file is not one of ours, which have about 2 kB."""


def write_kubeconfig(path: Path, text: str) -> None:
    """Write the kubeconfig ``text`` to ``path``, readable only by its owner.

    Raises FileExistsError, and writes nothing, if ``path`` has content that is not a kubeconfig of a control plane.
    """
    if not _may_overwrite(path):
        raise FileExistsError(
            f"{path}: exists and was not written by a control plane; allowed is a path that does not exist, "
            "or a kubeconfig of a control plane"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    if path.is_file():
        path.chmod(0o600)


def _may_overwrite(path: Path) -> bool:
    """Return whether no content is lost, or only a kubeconfig to which no user has added another cluster."""
    if not path.is_file():  # absent, or a device such as /dev/stdout
        return True
    size = path.stat().st_size
    return size == 0 or (size <= _MAX_SIZE and _is_own(path.read_bytes()))


def _is_own(data: bytes) -> bool:
    from envtest.yaml_codec import load

    try:
        document = load(data)
        return document["kind"] == "Config" and all(
            [item["name"] for item in document[part]] == [NAME] for part in ("clusters", "contexts")
        )
    except (ValueError, TypeError, LookupError):
        return False
