"""The facade of ``cfo.runtime``: one list of public names, each imported from its module on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import cfo.runtime

STUB = Path(cfo.runtime.__file__).with_suffix(".pyi")
OPERATOR = Path(cfo.__file__).parent


def declared_names() -> list[tuple[str, str]]:
    """Return module and name of each public name declared in the stub, which type checkers read."""
    return [
        (f"cfo.runtime.{node.module}" if node.module else "cfo.runtime", alias.name)
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]


@pytest.mark.parametrize(("module", "name"), declared_names())
def test_facade_exports_the_object_that_type_checkers_see(module: str, name: str) -> None:
    exported = getattr(cfo.runtime, name)
    if module == "cfo.runtime":
        assert exported is import_module(f"cfo.runtime.{name}")
    else:
        defining_module = import_module(module)
        assert exported is getattr(defining_module, name)
        assert name in defining_module.__all__


def test_each_public_name_is_declared_once() -> None:
    names = [name for _, name in declared_names()]
    assert sorted(set(names)) == sorted(names) == sorted(cfo.runtime.__all__)
    assert set(names) <= set(dir(cfo.runtime))


def test_operator_imports_the_runtime_through_the_facade() -> None:
    deep_imports = {
        f"{path.relative_to(OPERATOR)}: {node.module}"
        for path in OPERATOR.rglob("*.py")
        if OPERATOR / "runtime" not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cfo.runtime.")
        if node.module != "cfo.runtime.objects.field"
    }
    assert not deep_imports


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"No cfo\.runtime attribute Nonsense"):
        _ = cfo.runtime.Nonsense


@pytest.mark.parametrize(
    ("statement", "modules"),
    [
        ("import cfo.runtime", ["aiohttp", "msgspec", "structlog", "prometheus_client"]),
        ("from cfo.runtime import GVK, Request, is_deleting", ["aiohttp", "msgspec", "structlog"]),
        ("from cfo.runtime import field", ["aiohttp", "msgspec", "structlog"]),
        ("from cfo.runtime import Builder, Manager, load_config", ["kubernetes_asyncio", "pydantic", "cryptography"]),
    ],
)
def test_import_of_facade_does_not_load_unused_modules(statement: str, modules: list[str]) -> None:
    program = f"import sys\n{statement}\nprint([name for name in {modules!r} if name in sys.modules])"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
