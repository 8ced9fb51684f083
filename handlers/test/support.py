"""What several test modules need: a CRD, waiting for a condition, and the examples of pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cfo.runtime import Object

ROOT: Final = Path(__file__).parents[1]
TIMEOUT_SECONDS: Final = 60.0
"""How long :func:`eventually` waits, which is much longer than any test needs on an idle machine."""


def crd(group: str, version: str, kind: str, plural: str) -> Object:
    """Return a CRD that accepts any spec and status, with the subresource of the status."""
    any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": any_object, "status": any_object}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


async def eventually(condition: Callable[[], Any], description: str = "") -> Any:
    """Call ``condition`` until it returns a true value, and return that value.

    An ``AssertionError`` in ``condition`` counts as a false value. Fails after :data:`TIMEOUT_SECONDS` with the
    description and the last such error.
    """
    last: object = ""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TIMEOUT_SECONDS
    while loop.time() < deadline:
        started = loop.time()
        try:
            found = await condition()
        except AssertionError as error:
            last = error
        else:
            if found:
                return found
        # The control plane runs on the same processors: at most half of the time is spent in the condition.
        await asyncio.sleep(max(0.01, loop.time() - started))
    raise AssertionError(f"timed out after {TIMEOUT_SECONDS:g} s: {description} {last}")


def blocks_of(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def load_example(page: Path, first_line: str) -> ModuleType:
    """Execute the Python block of a page that begins with ``first_line``, and return it as a module."""
    (source,) = [block for block in blocks_of(page, "python") if block.startswith(first_line)]
    module = ModuleType(first_line.strip("# "))
    exec(compile(source, f"{page.name}:{first_line}", "exec"), module.__dict__)
    return module
