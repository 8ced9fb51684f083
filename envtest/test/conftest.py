"""Fixtures for all tests: a control plane, a client for it, and recordings of real servers if they exist."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

_WITH_EXPRESSIONS = (
    "integration/test_admission.py",
    "integration/test_crds.py",
    "integration/test_hostile.py",
    "integration/test_mutating_policies.py",
    "integration/test_validate.py",
    "unit/admission/test_matching.py",
    "unit/admission/test_policies.py",
    "unit/admission/test_policy_types.py",
    "unit/builtins/test_device_rules.py",
    "unit/builtins/test_policy_rules.py",
    "unit/crd/test_rule_costs.py",
    "unit/manifest_check/test_checker.py",
    "unit/schema/test_cel.py",
    "unit/schema/test_cel_admission.py",
    "unit/schema/test_cel_cost.py",
    "unit/schema/test_cel_evaluator.py",
    "unit/schema/test_cel_messages.py",
    "unit/schema/test_cel_values.py",
    "unit/schema/test_patterns.py",
)
"""Modules with tests that need CEL or RE2, whose libraries are not available on musl."""

collect_ignore = [] if find_spec("cel_expr_python") else list(_WITH_EXPRESSIONS)

_SHARED = Path(__file__).parents[3] / "shared"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and exclude them and all modules from later ones, and do fewer."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.fixture
def shared() -> Path:
    """Return the folder with recordings of real servers; skip the test if it does not exist."""
    if not _SHARED.is_dir():
        pytest.skip("no recordings next to the repository")
    return _SHARED


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane: the embedded one, or the real one of ``$KUBEBUILDER_ASSETS``."""
    async with ControlPlane.auto() as running:
        yield running


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[APIClient]:
    """Yield a client of the control plane, authenticated as admin."""
    async with APIClient(plane) as requests:
        yield requests
