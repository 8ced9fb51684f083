"""Tests of the log of unexpected exceptions."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from envtest.apimachinery.failure_log import log_failure

def handle(token):
    headers = {"Authorization": token}
    raise ValueError(f"{len(headers)} headers")

try:
    handle("never-logged")
except ValueError:
    log_failure("Request failed", path="/api")
"""


def test_failures_are_on_stderr_with_functions_and_no_values() -> None:
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "Request failed path='/api'\n" in done.stderr
    assert "in handle\n" in done.stderr
    assert "ValueError: 1 headers" in done.stderr
    assert "never-logged" not in done.stderr
