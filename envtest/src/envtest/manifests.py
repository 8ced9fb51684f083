"""Manifest files: YAML or JSON, one object or many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envtest.objects import Object

__all__ = ["CRD", "WEBHOOK_CONFIGURATIONS", "read_manifests"]

CRD = "CustomResourceDefinition"
WEBHOOK_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def read_manifests(path: Path, *, objects_only: bool = False) -> Iterator[Object]:
    """The objects of a file, or of the manifest files of a folder in the order of their names.

    ``objects_only`` passes over well-formed documents that are no objects, such as kustomize's files.
    Raises OSError where it cannot be read, ValueError (naming the file) where it is no manifest.
    """
    from envtest.yaml_codec import YAMLError, load

    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in _SUFFIXES:
                yield from read_manifests(file, objects_only=objects_only)
        return
    for text in _documents(path.read_bytes()):
        try:
            document = load(text)
        except YAMLError as error:
            raise ValueError(f"{path}: {error}") from None
        if document is None:
            continue
        if not isinstance(document, dict) or not document.get("kind"):
            if objects_only:
                continue
            raise ValueError(f"{path}: not a Kubernetes object: apiVersion and kind are missing")
        if document["kind"] == "List":
            yield from document.get("items") or ()
        else:
            yield document


def _documents(data: bytes) -> Iterator[bytes]:
    lines: list[bytes] = []
    for line in data.splitlines(keepends=True):
        if line.rstrip() == b"---" or line.startswith(b"--- "):
            yield b"".join(lines)
            lines = []
        else:
            lines.append(line)
    yield b"".join(lines)
