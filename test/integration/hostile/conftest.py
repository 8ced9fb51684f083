"""Operators of these tests have the permissions that their installation grants, as tenants have theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.endpoints.audit import AuditLog
from test.support.operator_roles import missing_permissions
from test.support.raycluster_environment import Environment


@pytest.fixture(autouse=True)
def expected_denials(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Run all operators with the roles of the manifests, and yield what these may refuse: verb and resource.

    The test fails if they refuse anything else; by default, they refuse nothing.
    """
    expected: set[str] = set()
    installations: list[AuditLog] = []
    monkeypatch.setattr(Environment, "installations", installations)
    yield expected
    for audit in installations:
        assert missing_permissions(audit) <= expected
