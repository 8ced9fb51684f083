"""No modules import each other in a circle, and docs/architecture.md describes each package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in (SOURCE / "envtest").rglob("*.py")}


def imports(module: str) -> Iterator[str]:
    """The modules of this package that ``module`` imports, in functions and under TYPE_CHECKING too."""
    file = MODULES[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = node.module or ""
        if node.level:
            above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            base = f"{above}.{node.module}" if node.module else above
        for name in node.names:
            full = f"{base}.{name.name}"
            found = full if full in MODULES else base
            if found in MODULES and found != module:
                yield found


GRAPH = {module: set(imports(module)) for module in MODULES}


def reachable(start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for module in GRAPH[waiting.pop()] - found:
            found.add(module)
            waiting.append(module)
    return found


def test_no_cycle_of_modules() -> None:
    assert not {module for module in MODULES if module in reachable(module)}


def test_documentation_describes_each_package() -> None:
    table = [
        line
        for line in (ROOT / "docs" / "architecture.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    described = [name for line in table for name in re.findall(r"`(\w+)/?`", line.split("|")[1])]
    packages = {module.split(".")[1] for module in MODULES if "." in module} - {"__main__"}
    assert sorted(described) == sorted(packages)
