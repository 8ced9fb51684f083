"""Numbers of things in the output of commands."""

from __future__ import annotations

import pytest

from cfo.console.counts import counted


@pytest.mark.parametrize(
    ("many", "noun", "text"),
    [
        (1, "Ingress", "1 Ingress"),
        (2, "Ingress", "2 Ingresses"),
        (0, "object", "0 objects"),
        (2, "NetworkPolicy", "2 NetworkPolicies"),
        (1, "NetworkPolicy", "1 NetworkPolicy"),
    ],
)
def test_noun_agrees_with_its_number(many: int, noun: str, text: str) -> None:
    assert counted(many, noun) == text
