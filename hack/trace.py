"""Traces the ways through cfo, and draws them.

    python -m hack.trace

Runs the tests that trace the operator, which then write ``hack/generate/ways.json`` (:mod:`hack.ways`), and draws
``docs/images/ways.svg`` from it.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from hack import ROOT
from hack.files import ToolError
from hack.generate import drawings
from hack.ways import WRITE_OPTION

TESTS: Final = ("test/integration/test_module_trail.py", "test/unit/webhooks/test_module_trails.py")


def main() -> None:
    """Trace and draw; exit with 1 if a test fails, or if the drawing does not say what a module does."""
    command = [sys.executable, "-m", "pytest", "-q", WRITE_OPTION, *TESTS]
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit("the ways are not traced, because a test failed")
    try:
        drawing = drawings.ways()
    except ToolError as error:
        sys.exit(str(error))
    (ROOT / drawings.WAYS).write_text(drawing)


if __name__ == "__main__":
    main()
