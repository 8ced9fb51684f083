"""``cfo crd``: print the CRDs of typed resources."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path, PurePath

import click
import yaml

from cfo.console.errors import InvalidInput
from cfo.runtime import CustomResource
from cfo.runtime.objects import SchemaError, custom_resource_definitions, resources_in


@click.command("crd")
@click.argument("source", metavar="MODULE[:CLASS]")
def command(source: str) -> None:
    """Print the CRDs of the typed resources in MODULE, or only that of one CLASS in it.

    Modules are imported from the current folder, too. All versions of a kind must be in MODULE.
    """
    try:
        definitions = custom_resource_definitions(_classes(source))
    except SchemaError as error:
        raise InvalidInput(f"{source}: {error}") from None
    click.echo(yaml.safe_dump_all(definitions, sort_keys=False, width=1 << 20), nl=False)


def _classes(source: str) -> list[type[CustomResource]]:
    name, _, attribute = source.partition(":")
    if name.endswith(".py"):
        module_name = ".".join(PurePath(name).with_suffix("").parts)
        raise InvalidInput(f"{name}: must be a module, such as {module_name}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"cannot import {name}: {error}") from None
    except SchemaError as error:
        raise InvalidInput(f"{name}: {error}") from None
    except SyntaxError as error:
        raise InvalidInput(f"cannot import {name}: {error}") from None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error}"
        raise InvalidInput(
            f"cannot import {name}: {last.filename}:{last.lineno}: {problem}"
        ) from error
    finally:
        sys.path.pop(0)
    found = resources_in(module)
    if attribute:
        selected = vars(module).get(attribute)
        if selected not in found:
            raise InvalidInput(f"{source}: not a class that declares a kind")
        kind = selected.gvk
        found = [
            other for other in found if (other.gvk.group, other.gvk.kind) == (kind.group, kind.kind)
        ]
    if not found:
        raise InvalidInput(f"{name}: no class declares a kind")
    return found
