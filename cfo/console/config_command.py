"""``cfo config``: check configuration documents, and print the default one."""

from __future__ import annotations

import json
from typing import Any

import click

from cfo.console.errors import InvalidInput, echo


@click.group("config")
def command() -> None:
    """Check a configuration, or print the default one."""


@command.command("default")
def default() -> None:
    """Print the default configuration."""
    from cfo.config.document import default_document

    click.echo(default_document(), nl=False)


@command.command("check")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--strict", is_flag=True, help="Treat warnings, such as unknown keys, as errors.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    help="Print the effective configuration: every key with its value or default; null means unset.",
)
def check(file: Any, strict: bool, output: str | None) -> None:
    """Check a configuration FILE.

    FILE contains a configuration document, or the ConfigMap with it; - reads standard input. The exit code is 0 if it
    is valid, and 2 if it is invalid, or has warnings with --strict. Problems are printed on stderr, one on each line.
    """
    import yaml

    from cfo.config.document import extract_document, parse
    from cfo.config.loading import MAX_CHARACTERS
    from cfo.config.section import ConfigurationError

    try:
        text = file.read(MAX_CHARACTERS + 1)
        if not text.strip():
            raise InvalidInput(f"{file.name}: is empty")
        parsed = parse(extract_document(text))
    except UnicodeDecodeError:
        raise InvalidInput(f"{file.name}: not a text file") from None
    except ConfigurationError as error:
        located = error.within(file.name)
        for warning in located.warnings:
            echo(f"Warning: {warning}", err=True)
        raise InvalidInput(*located.problems) from None
    if strict and parsed.warnings:
        raise InvalidInput(*(f"{file.name}: {warning}" for warning in parsed.warnings))
    for warning in parsed.warnings:
        echo(f"Warning: {file.name}: {warning}", err=True)
    if output is None:
        echo(f"{file.name}: valid")
        return
    document = parsed.configuration.to_document()
    if output == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False).rstrip())
