"""The cache of a manager, and so the operator's, holds a part of the container's memory limit."""

from __future__ import annotations

import pytest

from cfo import operator
from cfo.config.model import OperatorConfiguration
from cfo.runtime.cache import budget
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.manager.manager import ManagerOptions


@pytest.mark.parametrize(("limit", "total"), [(500 << 20, 100 << 20), (None, 256 << 20)])
def test_cache_holds_a_fifth_of_the_memory_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, total: int
) -> None:
    monkeypatch.setattr(budget, "memory_limit", lambda: limit)
    target = ClientConfig(server="https://localhost")
    manager = operator.new_manager(target, OperatorConfiguration(), "ns")
    assert manager.cache.budget.total_bytes == total
    manager.cache.budget.charge("tenant", 1000)
    registry = manager.metrics.registry
    assert registry.get_sample_value("cfo_cache_held_bytes") == 1000
    assert registry.get_sample_value("cfo_cache_total_bytes") == total
    assert ManagerOptions().total_bytes == total
