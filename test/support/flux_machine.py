"""A machine that runs the scripts of MiniClusters with a stand-in for ``flux`` that records its calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

FLUX = """#!/bin/bash
{ printf '%s\\0' "$@"; printf '\\1%s\\1' "${PWD}"; env -0; printf '\\2\\n'; } >> "${CALLS}"
[ "$1" = start ] || exit 0
while [ $# -gt 0 ]; do
  shift
  case "$1" in -*) ;; *) break ;; esac
done
[ $# -eq 0 ] || exec "$@"
"""
"""Records its arguments, working directory and environment; ``flux start`` then runs the initial program, if any."""


class Call(NamedTuple):
    """A call of ``flux``."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]


class Machine:
    """A folder that simulates the file system of a container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.log = folder / "calls"
        for name in ("bin", "work", "tmp", "view", "flux_operator"):
            (folder / name).mkdir()
        (folder / "flux_operator" / "curve.cert").write_text("certificate")
        self.environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "CALLS": str(self.log),
            "HOME": "/root",
        }
        self.program("flux", FLUX)
        self.program("hostname", "#!/bin/bash\necho flux-sample-0\n")

    def program(self, name: str, text: str) -> None:
        """Put a program on the PATH."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script, with its absolute paths inside the folder."""
        for name in ("scripts", "software", "views", "home", "output"):
            script = script.replace(f"\n{name}_path=/", f"\n{name}_path={self.folder}/")
        script = script.replace("\ncustom_script=/", f"\ncustom_script={self.folder}/")
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder / "work",
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def calls(self) -> list[Call]:
        """Return the recorded calls of ``flux``, in their order."""
        found = []
        for record in (self.log.read_text() if self.log.exists() else "").split("\2\n")[:-1]:
            arguments, directory, environment = record.split("\1", 2)
            variables = dict(item.split("=", 1) for item in environment.split("\0") if item)
            found.append(Call(arguments.split("\0")[:-1], directory, variables))
        return found

    def commands(self) -> list[list[str]]:
        """Return the recorded arguments of each call of ``flux``."""
        return [call.arguments for call in self.calls()]

    def last(self) -> list[str]:
        """Return the arguments of the last call, without broker options."""
        return [
            word for word in self.commands()[-1] if not word.startswith(("-S", "--config-path"))
        ]
