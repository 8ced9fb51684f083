"""The packages that this project is built on are declared dependencies, and are used."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def distribution_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[>=<~! ;]", requirement)[0] for requirement in requirements}


@cache
def imported_packages(folder: str) -> frozenset[str]:
    """Return the names of the top-level packages that the modules of a folder import, at any level."""
    names: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return frozenset(names)


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("anyio", "anyio"),
        ("kubernetes-asyncio", "kubernetes_asyncio"),
        ("prometheus-client", "prometheus_client"),
        ("pydantic", "pydantic"),
        ("structlog", "structlog"),
    ],
)
def test_package_is_a_dependency_that_the_library_imports(package: str, module: str) -> None:
    assert package in distribution_names(PROJECT["dependencies"])
    assert module in imported_packages("cfo/runtime")


@pytest.mark.parametrize(
    ("package", "module"), [("pytest", "pytest"), ("pytest-asyncio", "pytest_asyncio")]
)
def test_package_is_a_dependency_of_the_tests(package: str, module: str) -> None:
    assert package in distribution_names(PROJECT["optional-dependencies"]["dev"])
    assert module in imported_packages("cfo/runtime") | imported_packages("test/support")


def test_coroutines_are_tested_with_pytest_asyncio(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.hasplugin("asyncio")
    assert request.config.getini("asyncio_mode") == "auto"
