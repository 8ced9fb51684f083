"""Tests that requests with random tokens cannot make the operator flood the API server with reviews."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.runtime.client.client import Client
from cfo.runtime.manager.metrics_server import MetricsAuthorizer
from cfo.runtime.objects.unstructured import Object
from test.support.clocks import FakeClock

POD = "10.0.0.1"
PROMETHEUS = "10.0.0.2"


class Reviews:
    """A client that counts TokenReviews and allows tokens that begin with ``scraper``."""

    def __init__(self) -> None:
        self.count = 0

    async def create(self, obj: Object, **options: Any) -> Object:
        if obj["kind"] != "TokenReview":
            return {**obj, "status": {"allowed": True}}
        self.count += 1
        is_scraper = obj["spec"]["token"].startswith("scraper")
        return {"status": {"authenticated": is_scraper, "user": {}}}


class Metrics:
    """An authorizer with a clock, and the number of its reviews."""

    def __init__(self) -> None:
        self.reviews = Reviews()
        self.clock = FakeClock()
        self._authorizer = MetricsAuthorizer(cast("Client", self.reviews), self.clock)

    async def status(self, token: str, address: str) -> int:
        decision = await self._authorizer.decide(f"Bearer {token}", "/metrics", address)
        return decision.status

    async def flood(self, prefix: str, address: str, count: int = 1000) -> set[int]:
        return {await self.status(f"{prefix}-{number}", address) for number in range(count)}


async def test_random_tokens_have_a_budget_and_do_not_replace_the_scraper() -> None:
    metrics = Metrics()
    assert await metrics.status("scraper", PROMETHEUS) == 200
    assert await metrics.flood("random", PROMETHEUS) == {401, 429}
    assert metrics.reviews.count == 10
    assert await metrics.status("scraper", PROMETHEUS) == 200
    assert metrics.reviews.count == 10, "from the cache"
    metrics.clock.advance(61)
    await metrics.flood("other", PROMETHEUS)
    assert metrics.reviews.count == 20
    assert await metrics.status("scraper", PROMETHEUS) == 200, "renewed without budget"
    assert metrics.reviews.count == 21


async def test_flood_from_one_address_does_not_lock_out_new_tokens_of_others() -> None:
    metrics = Metrics()
    for second in range(5):
        await metrics.flood(f"random-{second}", POD)
        assert await metrics.status(f"scraper-{second}", PROMETHEUS) == 200
        assert await metrics.status(f"scraper-of-pod-{second}", POD) == 429
        metrics.clock.advance(1)


async def test_all_addresses_together_have_a_budget() -> None:
    metrics = Metrics()
    for number in range(1000):
        await metrics.flood(f"random-{number}", f"10.1.{number // 250}.{number % 250}", count=3)
    assert metrics.reviews.count == 100
    metrics.clock.advance(1)
    for number in range(100):
        await metrics.status(f"later-{number}", f"10.3.0.{number}")
    assert metrics.reviews.count == 120


@pytest.mark.parametrize("token", ["", "\udcff", "é", "x" * 20_000])
async def test_what_is_no_token_is_refused_without_a_review(token: str) -> None:
    metrics = Metrics()
    assert await metrics.status(token, POD) == 401
    assert metrics.reviews.count == 0
