"""Runs of pytest in other projects, each in a process of its own."""

from __future__ import annotations

import pytest


def run_pytest(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run the tests of the project of ``pytester`` with ``options``.

    Hypothesis, whose plugin is installed for our own tests, would be half of the time of a short run.
    """
    return pytester.runpytest_subprocess("-p", "no:hypothesispytest", *options, timeout=240)
