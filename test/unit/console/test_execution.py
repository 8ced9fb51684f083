"""What commands share."""

import sys

import pytest

from cfo.console.errors import InvalidInput
from cfo.console.execution import confirm


def test_confirmation_without_standard_input_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as for a process that was started with it closed
    with pytest.raises(InvalidInput, match="--yes is required"):
        confirm("Remove it?")
