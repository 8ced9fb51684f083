"""The files of the page. They contain no data, and refer to nothing outside of their directory."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

__all__ = ["load"]

_TYPES: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


def load() -> Mapping[str, tuple[bytes, str]]:
    """Return content and content type of each file by its name."""
    directory = files("cfo.console.dashboard") / "assets"
    return {
        item.name: (item.read_bytes(), _TYPES[suffix])
        for item in directory.iterdir()
        if (suffix := item.name.rpartition(".")[2]) in _TYPES
    }
