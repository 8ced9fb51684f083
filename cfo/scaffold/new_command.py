"""``cfo new``: write the project of a new operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from cfo.cli_errors import CommandFailed, InvalidInput
from cfo.scaffold.project import InvalidProject, Project, render

__all__ = ["command"]


@click.command("new", short_help="Write the project of a new operator.")
@click.argument("name")
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--kind", default="", help="Kind in CamelCase; by default derived from NAME without -operator.")
@click.option("--group", default="example.com", show_default=True, help="API group of the kind.")
def command(name: str, directory: Path | None, kind: str, group: str) -> None:
    """Write the project of an operator called NAME to DIRECTORY, by default a folder of that name.

    The project has a typed kind, a reconciler, a webhook, tests, generated manifests, a Dockerfile and a workflow.
    DIRECTORY must be empty or not exist.
    """
    try:
        project = Project(name=name, kind=kind, group=group)
    except InvalidProject as error:
        raise InvalidInput(str(error)) from None
    target = directory or Path(name)
    try:
        if target.exists() and any(target.iterdir()):
            raise InvalidInput(f"{target}: must be an empty folder, or not exist")
        for path, content in render(project).items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        _write_manifests(project, target)
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename or target}: {error.strerror or error}") from None
    click.echo(f"Created {target}. Next: cd {target} && make test && make run")


def _write_manifests(project: Project, target: Path) -> None:
    """Write the manifests that the project generates from its code."""
    done = subprocess.run(  # noqa: S603 - our own template
        [sys.executable, "-m", f"{project.package}.manifests"], cwd=target, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CommandFailed(f"cannot generate the manifests: {done.stderr.strip().splitlines()[-1]}")
    (target / "config" / "install.yaml").write_text(done.stdout, encoding="utf-8")
