"""``cfo new``: write the project of a new operator."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import click

from cfo.console.errors import CommandFailed, InvalidInput
from cfo.console.new.project import InvalidProject, Project, render


@click.command("new", short_help="Write the project of a new operator.")
@click.argument("name")
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--kind", default="", help="Kind in CamelCase; by default derived from NAME without -operator.")
@click.option("--group", default="example.com", show_default=True, help="API group of the kind.")
def command(name: str, directory: Path | None, kind: str, group: str) -> None:
    """Write the project of an operator called NAME to DIRECTORY, by default a folder of that name.

    The project has a typed kind, a reconciler, a webhook, tests, manifests and a Helm chart that are generated from the
    code, a Dockerfile and a workflow. DIRECTORY must be empty or not exist.
    """
    try:
        project = Project(name=name, kind=kind, group=group)
    except InvalidProject as error:
        raise InvalidInput(str(error)) from None
    installed = [other for other in packages_distributions().get(project.package, ()) if other != name]
    if installed:
        raise InvalidInput(f"NAME: {name!r}: the Python package {project.package} would hide that of {installed[0]}")
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
        raise CommandFailed(f"cannot write {error.filename or target}: {error.strerror or error}") from None
    click.echo(f"Created {target}. Next: cd {target} && make test && make run")


def _generate(project: Project, target: Path) -> None:
    """Let the project write its manifests and its chart, with the code that was written just now."""
    environment = {**os.environ, "PYTHONPATH": str(target.absolute()), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(  # noqa: S603 - our own template
        [sys.executable, "-m", f"{project.package}.generate"],
        cwd=target,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandFailed(f"cannot generate the manifests: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
