"""``cfo crd``: print the CRDs of typed resources, and check them for breaking changes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import click
import yaml

from cfo.console.errors import CommandFailed, InvalidInput, echo
from cfo.runtime import CustomResource, Object, name_of
from cfo.runtime.objects import SchemaError, breaking_changes, custom_resource_definitions, resources_in

_MAX_BYTES: Final = 16 * 1024 * 1024
_KIND: Final = "CustomResourceDefinition"


@click.command("crd")
@click.argument("source", metavar="MODULE[:CLASS]")
@click.option(
    "--check",
    "released",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Fail if the CRDs break objects or clients of the released CRDs in this YAML file. Nothing is printed.",
)
def command(source: str, released: Path | None) -> None:
    """Print the CRDs of the typed resources in MODULE, or only that of one CLASS in it.

    Modules are imported from the current folder, too. All versions of a kind must be in MODULE.
    """
    try:
        definitions = custom_resource_definitions(_classes(source))
    except SchemaError as error:
        raise InvalidInput(f"{source}: {error}") from None
    if released is None:
        click.echo(yaml.safe_dump_all(definitions, sort_keys=False, width=1 << 20), nl=False)
        return
    current = {name_of(definition): definition for definition in definitions}
    changes = [
        f"{name_of(old)}: {change}"
        for old in _read_definitions(released)
        for change in _changes_since(old, current.get(name_of(old)), released)
    ]
    for change in changes:
        echo(change, err=True)
    if changes:
        raise CommandFailed(f"{len(changes)} breaking changes since {released}")


def _changes_since(old: Object, new: Object | None, released: Path) -> list[str]:
    if new is None:
        return ["the CRD was removed"]
    try:
        return breaking_changes(old, new)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The types of its fields are not those of a CRD, which the API server would not accept.
        raise InvalidInput(f"{released}: {name_of(old)}: not a valid CRD: {error or type(error).__name__}") from None


def _classes(source: str) -> list[type[CustomResource]]:
    name, _, attribute = source.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"cannot import {name}: {error}") from None
    except SchemaError as error:
        raise InvalidInput(f"{name}: {error}") from None
    finally:
        sys.path.pop(0)
    found = resources_in(module)
    if attribute:
        selected = vars(module).get(attribute)
        if selected not in found:
            raise InvalidInput(f"{source}: not a class that declares a kind")
        kind = selected.gvk
        found = [other for other in found if (other.gvk.group, other.gvk.kind) == (kind.group, kind.kind)]
    if not found:
        raise InvalidInput(f"{name}: no class declares a kind")
    return found


def _read_definitions(file: Path) -> list[Object]:
    if file.stat().st_size > _MAX_BYTES:
        raise InvalidInput(f"{file}: larger than {_MAX_BYTES} bytes")
    try:
        documents = [document for document in yaml.safe_load_all(file.read_text()) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    found = [document for document in documents if isinstance(document, dict) and document.get("kind") == _KIND]
    if not found:
        raise InvalidInput(f"{file}: no {_KIND} found")
    return found
