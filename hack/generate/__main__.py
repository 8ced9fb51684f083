"""The command ``python -m hack.generate [--check]``."""

from __future__ import annotations

import sys

from hack import ROOT
from hack.files import ToolError
from hack.generate import (
    builtin_types,
    configuration,
    drawings,
    grafana,
    helm,
    kustomize,
    matrix,
    olm,
    public_api,
    ray_types,
    stack_types,
    what_passes,
)


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    generators = (
        matrix,  # the fastest, and in a file that people edit: its errors come at once
        kustomize,
        grafana,
        olm,
        helm,
        configuration,
        builtin_types,
        ray_types,
        stack_types,
        public_api,
        drawings,
        what_passes,
    )
    found: dict[str, str] = {}
    for generator in generators:
        found |= generator.files()
    return found


def main() -> None:
    """Write the files that are stale, or with ``--check`` print their names and exit with 1."""
    check = "--check" in sys.argv[1:]
    stale = []
    for name, content in files().items():
        path = ROOT / name
        if path.exists() and path.read_text() == content:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    if check and stale:
        sys.exit(f"stale files, run `make manifests`: {', '.join(stale)}")


if __name__ == "__main__":
    try:
        main()
    except ToolError as error:
        sys.exit(f"hack.generate: {error}")
