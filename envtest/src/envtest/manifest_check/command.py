"""The command ``envtest validate``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click

from envtest.apimachinery.errors import StatusError
from envtest.configuration.kubernetes_version import LATEST, SUPPORTED, parse_version
from envtest.configuration.option_types import PathOption
from envtest.formats.manifests import load_crds
from envtest.manifest_check.checker import Finding, check_manifests
from envtest.manifest_check.documents import MAX_BYTES, Source, read_source
from envtest.manifest_check.report import (
    Summary,
    github,
    json_report,
    skipped_lines,
    summary_line,
    text,
)
from envtest.manifest_check.selection import select_files

__all__ = ["command"]

_STDIN = "-"


@click.command(
    "validate",
    short_help="Check manifest files offline.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--kubernetes-version",
    default=LATEST.release,
    show_default=True,
    help=f"Version to check for: {', '.join(SUPPORTED)}.",
)
@click.option(
    "--crds",
    multiple=True,
    type=PathOption(exists=True),
    help="CRDs to install: file or folder.",
)
@click.option("--strict", is_flag=True, help="Report custom resources without a CRD as errors.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Format.",
)
@click.option(
    "--allow-empty", is_flag=True, help="Do not fail if there is no Kubernetes object to check."
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Print only problems: no summary, no skipped files."
)
def command(
    paths: tuple[str, ...],
    kubernetes_version: str,
    crds: tuple[Path, ...],
    strict: bool,
    allow_empty: bool,
    output: str,
    quiet: bool,
) -> None:
    """Check the manifests in files and folders, or on the standard input (-).

    Each object is created in an API server within this process: schemas with unknown and duplicate fields, defaults,
    validation, CRDs with CEL rules, admission policies. CRDs and namespaces in the manifests are created first. The
    exit code is 1 if there are errors, and 2 if the check is not possible, also because there is nothing to check.
    """
    if "" in paths:  # as of an unset variable
        _fail("PATH: must not be empty")
    try:
        version = parse_version(kubernetes_version)
        selection = select_files(Path(each) for each in paths if each != _STDIN)
        sources = [(str(file), _read(file)) for file in selection.files]
        if _STDIN in paths:
            sources.append(("<stdin>", sys.stdin.buffer.read(MAX_BYTES + 1)))
        read = [(name, read_source(name, _checked(name, data))) for name, data in sources]
        manifests = [manifest for _, source in read for manifest in source.manifests]
        definitions = load_crds(crds)
        findings = asyncio.run(
            check_manifests(manifests, definitions, version=version, strict=strict)
        )
    except StatusError as error:
        _fail(f"--crds: {error.message}")
    except OSError as error:
        reason = error.strerror or str(error)
        _fail(f"{error.filename}: {reason}" if error.filename else reason)
    except ValueError as error:
        _fail(str(error))
    findings = _merged(read, findings)
    skipped = {str(file): reason for file, reason in selection.skipped.items()}
    skipped |= {name: "no Kubernetes object" for name, source in read if _is_foreign(source)}
    summary = Summary(
        len(read) - sum(_is_foreign(source) for _, source in read), len(manifests), skipped
    )
    if output == "json":
        shown = json_report(findings, summary)
    elif output == "github":
        shown = github(findings)
    else:
        shown = text(findings)
    click.echo(shown, nl=False)
    if not quiet and output != "json":
        for line in skipped_lines(summary):
            click.echo(line, err=True)
        click.echo(summary_line(findings, summary), err=True)
    if any(each.level == "error" for each in findings):
        sys.exit(1)
    if not manifests and not allow_empty:
        places = ", ".join("the standard input" if each == _STDIN else each for each in paths)
        _fail(f"no Kubernetes object in {places}; --allow-empty accepts this")
    sys.exit(0)


def _read(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(MAX_BYTES + 1)


def _checked(name: str, data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise ValueError(f"{name}: larger than {MAX_BYTES} bytes")
    return data


def _is_foreign(source: Source) -> bool:
    return bool(source.others) and not source.manifests and not source.problems


def _merged(read: Iterable[tuple[str, Source]], findings: Iterable[Finding]) -> list[Finding]:
    """Return the problems of documents and objects, by file in the order of the arguments, then by line."""
    by_file: dict[str, list[Finding]] = {name: [] for name, _ in read}
    for finding in findings:
        by_file[finding.file].append(finding)
    for name, source in read:
        by_file[name] += [
            Finding(name, each.line, "error", "", each.message) for each in source.problems
        ]
    return [
        finding
        for found in by_file.values()
        for finding in sorted(found, key=lambda each: each.line)
    ]


def _fail(message: str) -> NoReturn:
    click.echo(f"{click.get_current_context().command_path}: {message}", err=True)
    sys.exit(2)
