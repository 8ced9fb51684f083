"""Validation of paths below a volume or a directory of the kubelet."""

from __future__ import annotations

from collections.abc import Iterator

from envtest.apimachinery.field_errors import FieldError, invalid

__all__ = ["backstep_errors", "relative_path_errors", "unreserved_path_errors"]


def backstep_errors(text: str, path: str) -> Iterator[FieldError]:
    """Yield an error if a path has an element ``..``."""
    if ".." in text.split("/"):
        yield invalid(path, text, "must not contain '..'")


def relative_path_errors(text: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a path that must be relative and must not contain ``..``."""
    if text.startswith("/"):
        yield invalid(path, text, "must be a relative path")
    yield from backstep_errors(text, path)


def unreserved_path_errors(text: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a relative path that must not begin with ``..``, as the kubelet's own files do."""
    yield from relative_path_errors(text, path)
    if text.startswith("..") and not text.startswith("../"):
        yield invalid(path, text, "must not start with '..'")
