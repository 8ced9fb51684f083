"""Operators of these tests have the permissions that their installation grants, as tenants have theirs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from cfo.runtime.objects.unstructured import Object
from envtest.endpoints.audit import AuditLog
from test.support import planes
from test.support.operator_roles import missing_permissions, required_roles
from test.support.raycluster_environment import Environment


@cache
def common_roles() -> list[Object]:
    """Return the roles with which control planes begin, so that each test only adds those of its configuration."""
    return required_roles()


@pytest.fixture(autouse=True)
def expected_denials(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Run all operators with the roles of the manifests, and yield what these may refuse: verb and resource.

    The test fails if they refuse anything else; by default, they refuse nothing.
    """
    expected: set[str] = set()
    installations: list[AuditLog] = []
    monkeypatch.setattr(Environment, "installations", installations)
    monkeypatch.setattr(planes, "common_objects", common_roles())
    yield expected
    for audit in installations:
        assert missing_permissions(audit) <= expected
