"""The list of the public API of ``cfo.runtime`` and its packages, with signatures: ``hack/public_api.txt``.

A change of a public name, parameter, default or annotation changes this file, so it is visible in a review, and
``make lint`` fails until it is intended (``make manifests``). The source is the syntax of the modules, which does not
depend on the version of Python, unlike ``inspect``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hack import ROOT

TARGET = "hack/public_api.txt"
RUNTIME = ROOT / "cfo" / "runtime"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> dict[str, str]:
    """Return the content of the generated file, by its path from the root of the repository."""
    return {TARGET: "".join(f"{line}\n" for line in lines())}


def exported_names(root: Path = RUNTIME) -> dict[str, list[str]]:
    """Return the public names of each module that has any, by its name in the package ``root``.

    The stubs of the packages in ``root`` list them; a package without any lists its own.
    """
    names: dict[str, list[str]] = {}
    stubs = list(root.glob("*/__init__.pyi")) or [root / "__init__.pyi"]
    for stub in stubs:
        package = "" if stub.parent == root else stub.parent.name
        for node in ast.parse(stub.read_text()).body:
            if not isinstance(node, ast.ImportFrom):
                continue
            module = ".".join(filter(None, (package, node.module)))
            for alias in node.names:
                submodule = f"{module}.{alias.name}".lstrip(".")
                path = _path(submodule, root)
                if path.exists():  # a module that is used through its name
                    names[submodule] = _exported(ast.parse(path.read_text()))
                else:
                    names.setdefault(module, []).append(alias.name)
    return names


def lines() -> Iterator[str]:
    """Yield one line for each public name and each public member of a class, sorted by module and name."""
    for module, exported in sorted(exported_names().items()):
        definitions = dict(_definitions(_parse(module)))
        for name in sorted(set(exported)):
            yield from _describe(f"{module}.{name}", definitions[name])


def _parse(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text())


def _path(module: str, root: Path = RUNTIME) -> Path:
    return root / f"{module.replace('.', '/')}.py"


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


def _definitions(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield name and statements of each definition at the top level; an overloaded function has several statements."""
    found: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.AnnAssign):
            found.setdefault(ast.unparse(node.target), []).append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(ast.unparse(target), []).append(node)
    yield from found.items()


def _describe(name: str, statements: list[ast.stmt]) -> Iterator[str]:
    for node in statements:
        match node:
            case ast.ClassDef():
                arguments = [*node.bases, *node.keywords]
                yield f"class {name}({', '.join(map(ast.unparse, arguments))})"
                for member in node.body:
                    yield from _describe_member(name, member)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _signature(name, node)
            case ast.AnnAssign():
                yield f"{name}: {ast.unparse(node.annotation)}"
            case ast.Assign():
                yield f"{name} = {ast.unparse(node.value)}"


_SPECIAL_METHODS = ("__init__", "__init_subclass__", "__call__")


def _describe_member(owner: str, member: ast.stmt) -> Iterator[str]:
    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
        if member.name in _SPECIAL_METHODS or not member.name.startswith("_"):
            yield _signature(f"{owner}.{member.name}", member)
    elif isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
        default = f" = {ast.unparse(member.value)}" if member.value is not None else ""
        yield f"{owner}.{ast.unparse(member.target)}: {ast.unparse(member.annotation)}{default}"
    elif isinstance(member, ast.Assign) and not ast.unparse(member.targets[0]).startswith("_"):
        yield f"{owner}.{ast.unparse(member.targets[0])} = {ast.unparse(member.value)}"


def _signature(name: str, node: _Function) -> str:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    prefix = "".join(
        f"@{decorator} "
        for decorator in decorators
        if decorator in ("cached_property", "classmethod", "overload", "property")
    )
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{prefix}{keyword} {name}({ast.unparse(node.args)}){returns}"
