"""Releases both distributions; see ``docs/releasing.md`` and ``python -m hack.release --help``."""

import os
import sys

from hack import ROOT

VENV_PYTHON = ROOT / ".venv" / "bin" / "python"

# the generators need all dependencies of the project, and the system's Python may have only some of them
if sys.prefix == sys.base_prefix and VENV_PYTHON.exists():
    os.execv(VENV_PYTHON, [str(VENV_PYTHON), "-m", "hack.release", *sys.argv[1:]])

try:
    import cfo.config.model  # noqa: F401 (needs the dependencies that the generators need)
    from hack.release.command import main
except ModuleNotFoundError as error:
    print(
        f"hack.release: module {error.name} is not installed; run: make .venv/.installed",
        file=sys.stderr,
    )
    sys.exit(2)

sys.exit(main())
