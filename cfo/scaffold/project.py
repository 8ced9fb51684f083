"""The files of a new project, rendered from the templates in this package. Pure functions."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from cfo.runtime import CustomResource, SchemaError

__all__ = ["InvalidProject", "Project", "render"]

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PLACEHOLDER = re.compile(r"@@([A-Za-z]+)@@")
_SUFFIXES = ("-operator", "-controller")
_VARIABLES = frozenset(
    {"anyio", "api", "client", "config_map", "field", "name", "port", "request", "self", "socket", "status"}
)
"""Names in the templates that a variable named after the kind must not have."""

_RESERVED = frozenset({"cfo", "config", "envtest", "test", "tests"})


class InvalidProject(ValueError):
    """Raised for an invalid name; the message contains the argument, its value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The names of a project. Raises :class:`InvalidProject` if one is invalid.

    ``name`` is a DNS label, which names the objects of the installation, too. ``kind`` is by default derived from it,
    without the suffix ``-operator``. ``group`` is the API group of the kind.
    """

    name: str
    kind: str = ""
    group: str = "example.com"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidProject(f"NAME: {self.name!r}: must be a lower-case DNS label that starts with a letter")
        package = self.package
        if package in _RESERVED or keyword.iskeyword(package) or package in sys.stdlib_module_names:
            raise InvalidProject(f"NAME: {self.name!r}: the Python package {package} would hide another one")
        if not self.kind:
            base = self.name
            for suffix in _SUFFIXES:
                base = base.removesuffix(suffix)
            object.__setattr__(self, "kind", "".join(word.capitalize() for word in base.split("-")))
        if keyword.iskeyword(self.variable) or self.variable in _VARIABLES:
            raise InvalidProject(f"--kind: {self.kind!r}: must not be a Python keyword or a name that the project uses")
        try:
            _ = self.plural
        except SchemaError as error:
            raise InvalidProject(str(error).replace(f"class {self.kind}: ", "--", 1)) from None

    @property
    def package(self) -> str:
        """The name of the Python package."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The name of Python variables with an object: the kind in snake case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.kind).lower()

    @property
    def plural(self) -> str:
        """The plural resource name."""
        declared = type(self.kind, (CustomResource,), {}, group=self.group, version="v1alpha1", kind=self.kind)
        plural: str = declared.declaration.plural  # type: ignore[attr-defined]
        return plural


def render(project: Project) -> dict[PurePosixPath, str]:
    """Return the content of each file of the project, by its path."""
    values = {
        "Kind": project.kind,
        "group": project.group,
        "name": project.name,
        "package": project.package,
        "plural": project.plural,
        "variable": project.variable,
    }
    return {
        path: _PLACEHOLDER.sub(lambda match: values[match.group(1)], text)
        for path, text in _templates(files(__package__) / "template", PurePosixPath(), project.package)
    }


def _templates(folder: Traversable, path: PurePosixPath, package: str) -> list[tuple[PurePosixPath, str]]:
    """Return path and content of the templates in ``folder``: ``dot-`` in a name means a leading dot."""
    found: list[tuple[PurePosixPath, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = re.sub(r"^dot-", ".", entry.name)
        if entry.is_dir():
            found += _templates(entry, path / (package if name == "package" else name), package)
        elif name.endswith(".tmpl"):
            found.append((path / name.removesuffix(".tmpl"), entry.read_text(encoding="utf-8")))
    return found
