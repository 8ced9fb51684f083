"""Accessors for manifests and Makefiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.manifests import monitoring

ROOT = Path(__file__).parents[2]
MAKEFILES = (ROOT / "Makefile", *sorted((ROOT / "hack").glob("*.mk")))


def load_all(text: str) -> list[dict[str, Any]]:
    """Return the documents of ``text``; the parser in C takes a third of the time, which CRDs make seconds."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of ``text``, which must not be changed.

    Large installations differ in a few documents: each text, such as that of a CRD, is parsed once.
    """
    return [_document(each) for each in re.split(r"^---\n", text, flags=re.MULTILINE) if each]


@cache
def _document(text: str) -> dict[str, Any]:
    (document,) = load_all(text)
    return document


def dump_all(objects: Iterable[dict[str, Any]]) -> str:
    """Return ``objects`` as YAML documents, with the emitter in C."""
    return str(yaml.dump_all(objects, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))


def by_key(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return ``objects`` by kind, namespace and name; fail on duplicates."""
    keys = [
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        for obj in objects
    ]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    return dict(zip(keys, objects, strict=True))


def make_targets(*makefiles: Path) -> set[str]:
    """Return the names of the targets in ``makefiles``, by default in those of this repository."""
    text = "".join(path.read_text() for path in makefiles or MAKEFILES)
    return set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", text, re.MULTILINE))


def kustomize(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that kubectl builds from ``folder``, which must not be changed; skip without kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl, which includes kustomize, is not installed")
    result = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return documents(result.stdout)


ALERTS_NAMESPACE = "operators"
"""The namespace of the operator that :func:`alerts` are for."""


def alerts() -> list[dict[str, Any]]:
    """Return the alerts on the metrics of the operator and its features."""
    _, rules = monitoring.objects(ALERTS_NAMESPACE)
    found: list[dict[str, Any]] = rules["spec"]["groups"][0]["rules"]
    return found
