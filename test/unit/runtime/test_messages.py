"""Messages of ``cfo.runtime``, which appear in every author's operator, name nothing of the CodeFlare operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cfo.runtime

RUNTIME = Path(cfo.runtime.__file__).parent
MODULES = sorted(str(path.relative_to(RUNTIME)) for path in RUNTIME.rglob("*.py"))
OF_THE_PRODUCT = re.compile(
    r"\bcfo [a-z]|(^|\s)--[a-z]|RayCluster|AppWrapper|InferenceStack|MiniCluster|FluxJob|kuberay",
    re.IGNORECASE,
)


def messages_of(source: str) -> Iterator[str]:
    """Yield all strings of a module except for those that stand alone: docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("module", MODULES)
def test_messages_name_no_command_option_or_kind_of_the_product(module: str) -> None:
    found = messages_of((RUNTIME / module).read_text())
    assert [message for message in found if OF_THE_PRODUCT.search(message)] == []
