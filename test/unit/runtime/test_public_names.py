from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import cfo.runtime


def declared() -> list[tuple[str, str]]:
    """What type checkers are told: module and name."""
    tree = ast.parse(Path(cfo.runtime.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    return [
        (str(node.module), alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


@pytest.mark.parametrize(("module", "name"), declared())
def test_a_name_is_what_type_checkers_are_told(module: str, name: str) -> None:
    assert getattr(cfo.runtime, name) is getattr(import_module(module), name)


def test_all_names_are_declared() -> None:
    assert sorted(cfo.runtime.__all__) == sorted(name for _, name in declared())
    assert set(cfo.runtime.__all__) <= set(dir(cfo.runtime))


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'cfo\.runtime' has no attribute 'Nonsense'"):
        _ = cfo.runtime.Nonsense


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import cfo.runtime", ["aiohttp", "msgspec", "structlog", "prometheus_client"]),
        ("from cfo.runtime import GVK, Request, is_deleting", ["aiohttp", "msgspec", "structlog"]),
        ("from cfo.runtime import Builder, Manager, load_config", ["kubernetes_asyncio", "pydantic", "cryptography"]),
    ],
)
def test_nothing_is_imported_before_it_is_needed(statement: str, heavy: list[str]) -> None:
    program = f"import sys\n{statement}\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
