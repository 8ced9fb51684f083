"""Pins the base images of our images by digest: ``python -m hack.base_images [--strict | --write]``.

Without options, the base images without a digest are listed. ``--strict`` fails if there is one; a release does this.
``--write`` asks the registries for the digests, with ``docker buildx imagetools``, and writes them to the files.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hack import ROOT

FILES = ("Dockerfile", "envtest/Dockerfile", "hack/generate/olm/catalog.py")
"""The files that name base images; deploy/catalog.Dockerfile is generated."""

_FROM = re.compile(
    r"\bFROM (?P<image>[\w.-]+(?:/[\w.-]+)*:[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def unpinned(root: Path) -> list[tuple[str, str]]:
    """Return file and image of each base image without a digest."""
    found: list[tuple[str, str]] = []
    for name in FILES:
        text = (root / name).read_text()
        found += ((name, match["image"]) for match in _FROM.finditer(text) if not match["digest"])
    return found


def pin(text: str, resolve: Callable[[str], str]) -> str:
    """Return ``text`` with the current digest of each base image; ``resolve`` returns the digest of an image."""
    return _FROM.sub(lambda match: f"FROM {match['image']}@{resolve(match['image'])}", text)


def resolve_digest(image: str) -> str:
    """Return the digest of ``image`` for all platforms. Raises :class:`ValueError` for any other answer."""
    command = [
        "docker",
        "buildx",
        "imagetools",
        "inspect",
        image,
        "--format",
        "{{.Manifest.Digest}}",
    ]
    digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if _DIGEST.fullmatch(digest) is None:
        raise ValueError(f"{image}: {digest!r}: must be a digest")
    return digest


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command, and return its exit code."""
    description, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="hack.base_images", description=description)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true", help="fail if a base image has no digest")
    mode.add_argument("--write", action="store_true", help="write the current digests")
    options = parser.parse_args(arguments)
    if options.write:
        for name in FILES:
            path = root / name
            path.write_text(pin(path.read_text(), resolve_digest))
    found = unpinned(root)
    for name, image in found:
        print(f"{name}: {image}: no digest; run: make base-images")
    has_failed = bool(found) and options.strict
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
