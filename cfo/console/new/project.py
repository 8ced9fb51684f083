"""``cfo new``: the files of a new project, rendered from the templates in this package."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import click

from cfo.console.errors import CommandFailed, InvalidInput
from cfo.runtime import CustomResource
from cfo.runtime.objects import SchemaError


@click.command("new")
@click.argument("name")
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--kind", default="", help="Kind in CamelCase; by default derived from NAME without -operator."
)
@click.option(
    "--plural", default="", help="Plural of the kind, in lower case; by default derived from it."
)
@click.option("--group", default="example.com", show_default=True, help="API group of the kind.")
def command(name: str, directory: Path | None, kind: str, plural: str, group: str) -> None:
    """Write the project of an operator called NAME to DIRECTORY, by default a folder of that name.

    The project has a typed kind, a reconciler, a webhook, tests, manifests and a Helm chart that are generated from the
    code, a Dockerfile and a workflow. DIRECTORY must be empty or not exist.
    """
    try:
        project = Project(name=name, kind=kind, plural=plural, group=group)
    except InvalidProject as error:
        raise InvalidInput(str(error)) from None
    distributions = _distributions_of(project.package)
    installed = [other for other in distributions if other != name or not _is_local(other)]
    if installed:
        raise InvalidInput(
            f"NAME: {name!r}: the Python package {project.package} would hide that of {installed[0]}"
        )
    target = directory or Path(name)
    try:
        if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
            raise InvalidInput(f"{target}: must be an empty folder, or not exist")
        for path, content in render(project).items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as stream:  # never overwrite
                stream.write(content)
        _generate(project, target)
    except OSError as error:
        raise CommandFailed(
            f"cannot write {error.filename or target}: {error.strerror or error}"
        ) from None
    kind = f"{project.kind} ({project.plural}.{project.group})"
    click.echo(f"Created {target} for the kind {kind}. Next: cd {target} && make test && make run")


def _distributions_of(package: str) -> Sequence[str]:
    """Return the installed distributions with ``package``; the files of all are read only if one can have it."""
    if find_spec(package) is None:
        return ()
    return metadata.packages_distributions().get(package, ())


def _is_local(distribution: str) -> bool:
    """Return whether a distribution was installed from a folder, as a project is into its own environment."""
    origin = metadata.distribution(distribution).read_text("direct_url.json")  # PEP 610
    return origin is not None and "dir_info" in json.loads(origin)


def _generate(project: Project, target: Path) -> None:
    """Let the project write its manifests and its chart, with the code that was written just now."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(target.absolute()),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(  # noqa: S603 - our own template
        [sys.executable, "-m", f"{project.package}.generate"],
        cwd=target,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise CommandFailed(f"cannot generate the manifests: {lines[-1]}")


_MAX_LENGTH = 40
"""The maximum length of a name and of a kind, so that template lines keep their format."""

_MAX_SHOWN = 2 * _MAX_LENGTH
"""The maximum number of characters of an argument in a message."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PLACEHOLDER = re.compile(r"@@([A-Za-z]+)@@")
_SUFFIXES = ("-operator", "-controller")
_CLASS_SUFFIXES = ("", "Spec", "Status", "Reconciler", "Webhook")
_PROTECTED = (".k8s.io", ".kubernetes.io")
"""API servers reject CRDs of these groups without an approval."""

_RESERVED = frozenset(
    {"build", "cfo", "chart", "config", "conftest", "dist", "envtest", "test", "tests"}
)
"""Folders in a project, packages that it imports, and the module that pytest imports by itself."""


class InvalidProject(ValueError):
    """Raised for an invalid name; the message contains the argument, its value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The names of a project. Raises :class:`InvalidProject` if one is invalid.

    ``name`` is a DNS label, which names the objects of the installation, too. ``kind`` is by default derived from it,
    without the suffix ``-operator``, and ``plural``, its resource name, from the kind. They have at most 40 characters.
    ``group`` is the API group of the kind.
    """

    name: str
    kind: str = ""
    plural: str = ""
    group: str = "example.com"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _MAX_LENGTH:
            raise InvalidProject(
                f"NAME: {_shown(self.name)}: must be a lower-case DNS label that starts with a letter, "
                f"of at most {_MAX_LENGTH} characters"
            )
        package = self.package
        if package in _RESERVED or keyword.iskeyword(package) or package in sys.stdlib_module_names:
            raise InvalidProject(
                f"NAME: {self.name!r}: the Python package {package} would hide another one"
            )
        if not self.kind:
            base = self.name
            for suffix in _SUFFIXES:
                base = base.removesuffix(suffix)
            kind = "".join(word.capitalize() for word in base.split("-"))
            object.__setattr__(self, "kind", kind)
        if len(self.kind) > _MAX_LENGTH:
            raise InvalidProject(
                f"--kind: {_shown(self.kind)}: must have at most {_MAX_LENGTH} characters"
            )
        classes = {f"{self.kind}{suffix}" for suffix in _CLASS_SUFFIXES}
        used = _used_names() | set(keyword.kwlist) | set(dir(builtins))
        taken = sorted(classes & used)
        if taken:
            raise InvalidProject(
                f"--kind: {self.kind!r}: the project needs the name {taken[0]} for something else: choose another kind"
            )
        if f".{self.group}".endswith(_PROTECTED):
            raise InvalidProject(
                f"--group: {_shown(self.group)}: is reserved for Kubernetes: use a domain that you own"
            )
        if len(self.plural) > _MAX_LENGTH:
            raise InvalidProject(
                f"--plural: {_shown(self.plural)}: must have at most {_MAX_LENGTH} characters"
            )
        try:
            object.__setattr__(self, "plural", self._declared_plural())
        except SchemaError as error:
            raise InvalidProject(str(error).replace(f"class {self.kind}: ", "--", 1)) from None

    @property
    def package(self) -> str:
        """The name of the Python package."""
        return self.name.replace("-", "_")

    def _declared_plural(self) -> str:
        """Return the plural resource name that the class of the kind declares."""
        declared = type(
            self.kind,
            (CustomResource,),
            {},
            group=self.group,
            version="v1alpha1",
            kind=self.kind,
            plural=self.plural,
        )
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
    }
    templates = _templates(files(__package__) / "template", PurePosixPath(), project.package)
    return {
        path: _PLACEHOLDER.sub(lambda match: values[match.group(1)], text)
        for path, text in templates
    }


def _shown(value: str) -> str:
    """Return an argument for an error message of one line."""
    if len(value) > _MAX_SHOWN:
        value = f"{value[:_MAX_SHOWN]}..."
    return repr(value)


@cache
def _used_names() -> frozenset[str]:
    """Return the names that the Python files of a project use, apart from those that are derived from the kind."""
    found: set[str] = set()
    for path, text in _templates(files(__package__) / "template", PurePosixPath(), "package"):
        if path.suffix != ".py":
            continue
        # Dunder names mark what is derived from the project.
        source = _PLACEHOLDER.sub(lambda match: f"__{match[1]}__", text)
        for node in ast.walk(ast.parse(source)):
            match node:
                case (
                    ast.Name(id=name)
                    | ast.arg(arg=name)
                    | ast.ClassDef(name=name)
                    | ast.FunctionDef(name=name)
                ):
                    found.add(name)
                case ast.alias(name=name, asname=alias):
                    found.add(alias or name.partition(".")[0])
    return frozenset(name for name in found if "__" not in name.strip("_"))


def _templates(
    folder: Traversable, path: PurePosixPath, package: str
) -> list[tuple[PurePosixPath, str]]:
    """Return path and content of the templates in ``folder``: ``dot-`` in a name means a leading dot."""
    found: list[tuple[PurePosixPath, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = re.sub(r"^dot-", ".", entry.name)
        if entry.is_dir():
            folder_name = package if name == "package" else name
            found += _templates(entry, path / folder_name, package)
        elif name.endswith(".tmpl"):
            found.append((path / name.removesuffix(".tmpl"), entry.read_text(encoding="utf-8")))
    return found
