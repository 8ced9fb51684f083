"""The public names of ``cfo.runtime`` and its packages: each imported from its module on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import cfo.runtime

RUNTIME = Path(cfo.runtime.__file__).parent
FLOORS = sorted(stub.parent.name for stub in RUNTIME.glob("*/__init__.pyi"))
PACKAGES = ["cfo.runtime", *(f"cfo.runtime.{floor}" for floor in FLOORS)]
OPERATOR = RUNTIME.parent


def declared_names(package: str) -> list[tuple[str, str]]:
    """Return module and name of each public name declared in the stub of ``package``, which type checkers read."""
    stub = Path(str(import_module(package).__file__)).with_suffix(".pyi")
    return [
        (f"{package}.{node.module}" if node.module else package, alias.name)
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [(package, *names) for package in PACKAGES for names in declared_names(package)],
)
def test_package_exports_the_object_that_type_checkers_see(
    package: str, module: str, name: str
) -> None:
    exported = getattr(import_module(package), name)
    if (RUNTIME / module.removeprefix("cfo.runtime").replace(".", "/").lstrip("/")).is_dir():
        assert exported is import_module(f"{module}.{name}")
    else:
        assert exported is getattr(import_module(module), name)
        assert not name.startswith("_")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_is_declared_once(package: str) -> None:
    names = [name for _, name in declared_names(package)]
    module = import_module(package)
    assert sorted(set(names)) == sorted(names) == sorted(module.__all__)
    assert set(names) <= set(dir(module))


def test_top_level_has_few_names_and_each_is_public_in_its_package() -> None:
    assert len(cfo.runtime.__all__) <= 120
    in_packages = {name for package in PACKAGES[1:] for _, name in declared_names(package)}
    assert set(cfo.runtime.__all__) <= in_packages


def test_operator_imports_the_runtime_through_its_packages() -> None:
    deep_imports = {
        f"{path.relative_to(OPERATOR)}: {node.module}"
        for path in OPERATOR.rglob("*.py")
        if RUNTIME not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cfo.runtime.")
        if node.module not in (*PACKAGES, "cfo.runtime.objects.field")
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
        (
            "from cfo.runtime import Builder, Manager, load_config",
            ["kubernetes_asyncio", "pydantic", "cryptography"],
        ),
    ],
)
def test_import_of_facade_does_not_load_unused_modules(statement: str, modules: list[str]) -> None:
    program = (
        f"import sys\n{statement}\nprint([name for name in {modules!r} if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"


_HELP = """
import importlib, pydoc, sys

class WithoutExtras:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("envtest", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, WithoutExtras())
for name in sys.argv[1:]:
    assert "NAME" in pydoc.render_doc(importlib.import_module(name), renderer=pydoc.plaintext)
"""


def test_help_of_each_package_needs_no_extra() -> None:
    """``help()`` and the completion of a shell import all public names of a package."""
    command = [sys.executable, "-c", _HELP, *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
