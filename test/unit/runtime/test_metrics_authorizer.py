"""Tests that requests with random tokens cannot make the operator flood the API server with reviews."""

from __future__ import annotations

from typing import Any, cast

from cfo.runtime.client.client import Client
from cfo.runtime.manager.metrics_server import MetricsAuthorizer
from cfo.runtime.objects.unstructured import Object
from test.support.clocks import SteppedClock


class Reviews:
    """A client that counts TokenReviews and allows the token ``scraper``."""

    def __init__(self) -> None:
        self.count = 0

    async def create(self, obj: Object, **options: Any) -> Object:
        if obj["kind"] != "TokenReview":
            return {**obj, "status": {"allowed": True}}
        self.count += 1
        return {"status": {"authenticated": obj["spec"]["token"] == "scraper", "user": {}}}


async def test_random_tokens_have_a_budget_and_do_not_replace_the_scraper() -> None:
    reviews = Reviews()
    clock = SteppedClock()
    authorizer = MetricsAuthorizer(cast("Client", reviews), clock)
    assert (await authorizer.decide("Bearer scraper", "/metrics")).is_allowed
    decisions = [await authorizer.decide(f"Bearer {number}", "/metrics") for number in range(1000)]
    assert {decision.status for decision in decisions} == {401, 429}
    assert reviews.count == 20
    assert (await authorizer.decide("Bearer scraper", "/metrics")).is_allowed
    assert reviews.count == 20
    clock.step(61)
    for number in range(1000):
        await authorizer.decide(f"Bearer other-{number}", "/metrics")
    assert (await authorizer.decide("Bearer scraper", "/metrics")).is_allowed, (
        "renewed without budget"
    )
    assert reviews.count == 41
