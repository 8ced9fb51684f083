"""The distribution is built on the public names of ``cfo.runtime``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import cfo.runtime
from test.support import ROOT

RUNTIME = Path(cfo.runtime.__file__).parent
PUBLIC = {"cfo.runtime", *(f"cfo.runtime.{stub.parent.name}" for stub in RUNTIME.glob("*/*.pyi"))}
"""The packages that list their public names in an ``__init__.pyi``."""
FILES = sorted(
    [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("*.pyi"),
        *(ROOT / "example").rglob("*.py"),
    ]
)


def imported_from_cfo(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from ``cfo``, wherever it is; the name of a module import is empty."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "cfo":
                    yield alias.name, ""
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            if module.partition(".")[0] == "cfo":
                for alias in node.names:
                    yield module, alias.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_uses_only_public_names(path: Path) -> None:
    for module, name in imported_from_cfo(path.read_text()):
        assert module in PUBLIC, f"{module} is not public"
        assert name in import_module(module).__all__, f"{module}.{name} is not public"


def test_private_names_and_modules_are_found() -> None:
    source = "import cfo.api\ndef f():\n    from cfo.runtime.client.client import Client, _x\nimport cfox\n"
    assert list(imported_from_cfo(source)) == [
        ("cfo.api", ""),
        ("cfo.runtime.client.client", "Client"),
        ("cfo.runtime.client.client", "_x"),
    ]
    assert "cfo.runtime.client" in PUBLIC
    assert "cfo.runtime.client.client" not in PUBLIC


def test_no_attribute_with_an_underscore_of_another_object_is_used() -> None:
    """Such as ``client._cache``: only ``self``, and names that the same module declares, may have them."""
    for path in FILES:
        tree = ast.parse(path.read_text())
        own = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                is_python = node.attr.endswith("__") or node.attr == "_replace"  # of a NamedTuple
                assert is_python or node.attr in own, f"{path.name}:{node.lineno}: {node.attr}"
