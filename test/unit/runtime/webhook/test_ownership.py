"""Tests of the decision which operator owns a webhook configuration, and of whether it is alive."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.runtime.webhook.certificates.overwrites import OVERWRITE_WINDOW, OverwriteLimit
from cfo.runtime.webhook.options import ServiceReference, WebhookURL
from cfo.runtime.webhook.ownership import (
    OPERATOR_ANNOTATION,
    OperatorMark,
    OwnerProbe,
    WebhookOwner,
    address_of,
    addresses_of,
    described_owner,
    holder_suffix,
    mark_of,
    owner_of,
    serves,
)
from test.support.clocks import FakeClock

LEASE_NAME = "lock"
OURS = "Service ours/hooks"
THEIRS = "Service theirs/hooks"
URL = "https://10.0.0.1:9443"
OTHER_URL = "https://10.0.0.2:9443"
OUR_LEASE = NamespacedName("ours", LEASE_NAME)
THEIR_LEASE = NamespacedName("theirs", LEASE_NAME)
CUSTOM_LEASE = NamespacedName("elsewhere", "custom")


def marked(address: str, lease: NamespacedName) -> OperatorMark:
    return OperatorMark(address, lease.namespace, lease.name)


def client_config(address: str) -> dict[str, Any]:
    if address.startswith("https://"):
        return {"url": f"{address}/mutate"}
    if not address:
        return {}
    namespace, _, name = address.removeprefix("Service ").partition("/")
    return {"service": {"namespace": namespace, "name": name, "path": "/mutate"}}


def configuration(*addresses: str, mark: OperatorMark | str | None = None) -> Object:
    """Return a webhook configuration with one webhook for each address."""
    annotations = {}
    if isinstance(mark, OperatorMark):
        annotations[OPERATOR_ANNOTATION] = mark.encode()
    if isinstance(mark, str):
        annotations[OPERATOR_ANNOTATION] = mark
    return {
        "metadata": {"name": "hooks", "annotations": annotations},
        "webhooks": [
            {"name": f"h{number}.example.com", "clientConfig": client_config(address)}
            for number, address in enumerate(addresses)
        ],
    }


@pytest.mark.parametrize(
    ("stored", "own", "expected"),
    [
        pytest.param(configuration(), OURS, None, id="without webhooks"),
        pytest.param(configuration(""), OURS, None, id="without an address"),
        pytest.param(
            configuration(OURS), OURS, WebhookOwner(OURS, OUR_LEASE), id="ours, not marked"
        ),
        pytest.param(
            configuration(OURS, mark=marked(OURS, CUSTOM_LEASE)),
            OURS,
            WebhookOwner(OURS, CUSTOM_LEASE),
            id="ours, marked with a Lease of another name",
        ),
        pytest.param(
            configuration(THEIRS), OURS, WebhookOwner(THEIRS, THEIR_LEASE), id="of the Go operator"
        ),
        pytest.param(
            configuration(THEIRS, mark=marked(THEIRS, CUSTOM_LEASE)),
            OURS,
            WebhookOwner(THEIRS, CUSTOM_LEASE),
            id="of another installation",
        ),
        pytest.param(
            configuration(OURS, mark=marked(THEIRS, THEIR_LEASE)),
            OURS,
            WebhookOwner(OURS, OUR_LEASE),
            id="our manifests were applied over another installation's",
        ),
        pytest.param(
            configuration(URL, mark=marked(URL, OUR_LEASE)),
            OURS,
            WebhookOwner(URL, OUR_LEASE),
            id="URL of an operator in our namespace",
        ),
        pytest.param(configuration(URL), OURS, WebhookOwner(URL), id="URL without a mark"),
        pytest.param(
            configuration(URL, mark=marked(URL, THEIR_LEASE)),
            URL,
            WebhookOwner(URL, THEIR_LEASE),
            id="our URL",
        ),
        pytest.param(
            configuration(OTHER_URL, mark=marked(OTHER_URL, OUR_LEASE)),
            URL,
            WebhookOwner(OTHER_URL, OUR_LEASE),
            id="former URL",
        ),
        pytest.param(
            configuration(OURS, URL, mark=marked(URL, OUR_LEASE)),
            OURS,
            WebhookOwner(URL, OUR_LEASE),
            id="one webhook was added while a URL is served",
        ),
        pytest.param(
            configuration(THEIRS, OURS),
            OURS,
            WebhookOwner(OURS, OUR_LEASE),
            id="several, not marked",
        ),
        pytest.param(
            configuration(THEIRS, mark="{"),
            OURS,
            WebhookOwner(THEIRS, THEIR_LEASE),
            id="malformed mark",
        ),
    ],
)
def test_owner_is_the_marked_or_named_operator(
    stored: Object, own: str, expected: WebhookOwner | None
) -> None:
    assert owner_of(stored, own, LEASE_NAME) == expected


@pytest.mark.parametrize(
    "mark",
    ["", "[]", "{", "null", '{"address": 1}', '{"address": "a", "leaseName": "b"}', "x" * 5000],
)
def test_malformed_mark_is_ignored(mark: str) -> None:
    assert mark_of(configuration(OURS, mark=mark)) is None


def test_mark_is_decoded_as_encoded() -> None:
    mark = marked(URL, CUSTOM_LEASE)
    assert mark_of(configuration(URL, mark=mark)) == mark


def test_addresses_are_compared_without_port_of_service_and_path_of_url() -> None:
    stored = configuration(OURS, URL)
    stored["webhooks"][0]["clientConfig"]["service"]["port"] = 8443
    assert addresses_of(stored) == {OURS, URL}
    assert address_of(ServiceReference("ours", "hooks", 8443)) == OURS
    assert address_of(WebhookURL("10.0.0.1", 9443)) == URL


def test_url_that_no_operator_can_have_is_an_address_of_its_own() -> None:
    stored = configuration(OURS)
    stored["webhooks"][0]["clientConfig"] = {"url": "http://[bad"}
    assert addresses_of(stored) == {"http://[bad"}


@pytest.mark.parametrize(
    ("holder", "address", "expected"),
    [
        ("pod_uuid", OURS, True),
        ("pod_uuid", URL, False),
        (f"laptop_uuid_{URL}", URL, True),
        (f"laptop_uuid_{URL}", OTHER_URL, False),
        (f"laptop_uuid_{URL}", OURS, False),
        ("", OURS, False),
        ("", URL, False),
    ],
)
def test_holder_serves_at_the_url_in_its_identity_or_at_its_service(
    holder: str, address: str, expected: bool
) -> None:
    assert serves(holder, address) is expected


def test_identity_of_an_operator_outside_the_cluster_contains_its_url() -> None:
    assert serves(f"host_uuid{holder_suffix(WebhookURL('10.0.0.1', 9443))}", URL)
    assert holder_suffix(None) == ""


class Leases:
    """Answers reads of a Lease with the given states, and then always with the last one."""

    def __init__(self, *states: Object | Exception | None) -> None:
        self.states = list(states)
        self.reads = 0

    async def get(self, *_: Any, **__: Any) -> Object | None:
        self.reads += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state


def lease(holder: str, renewed: int, seconds: Any = 15) -> Object:
    time = datetime(2026, 1, 1, 0, 0, renewed, tzinfo=UTC).isoformat()
    spec = {"holderIdentity": holder, "renewTime": time, "leaseDurationSeconds": seconds}
    return {"spec": spec}


FORBIDDEN = Forbidden(403, {"message": "leases is forbidden"})


async def probe(
    leases: Leases, address: str = THEIRS, *, reads_endpoints: bool = False
) -> tuple[OwnerProbe, str, float]:
    """Return the probe, the holder that it found, and for how many seconds it observed the Lease."""
    clock = FakeClock()
    probing = OwnerProbe(cast("Client", leases), clock, reads_endpoints=reads_endpoints)
    task = asyncio.create_task(probing.living_holder(WebhookOwner(address, THEIR_LEASE)))
    while not task.done():
        for _ in range(5):
            await asyncio.sleep(0)
        if clock.timers:
            clock.advance(1.0)
    return probing, task.result(), clock.monotonic()


@pytest.mark.parametrize(
    ("states", "holder"),
    [
        pytest.param([lease("a", 0), lease("a", 2)], "a", id="renewed"),
        pytest.param([lease("a", 0), lease("b", 2)], "b", id="acquired by another replica"),
        pytest.param([lease("", 0, 1), lease("b", 2)], "b", id="acquired after a release"),
        pytest.param([lease("a", 0), lease("a", 0)], "", id="not renewed"),
        pytest.param([lease("", 0, 1)], "", id="released"),
        pytest.param([None], "", id="missing"),
        pytest.param([{"spec": {}}], "", id="empty"),
        pytest.param([lease(f"a_{URL}", 0), lease(f"a_{URL}", 2)], "", id="of a URL"),
        pytest.param([lease("a\n", 0), lease("a\n", 2)], "a\\n", id="not printable"),
        pytest.param(
            [FORBIDDEN], "unknown, because the Lease may not be read", id="may not be read"
        ),
    ],
)
async def test_operator_that_renews_its_lease_is_alive(
    states: list[Object | Exception | None], holder: str
) -> None:
    _, found, _ = await probe(Leases(*states))
    assert found == holder


@pytest.mark.parametrize(
    ("seconds", "observed"), [(15, 16), (1, 6), (10**9, 300), ("15", 6), (-1, 6)]
)
async def test_lease_is_observed_for_its_bounded_duration(seconds: Any, observed: float) -> None:
    leases = Leases(lease("a", 0, seconds))
    probing, holder, elapsed = await probe(leases)
    assert (holder, elapsed) == ("", observed)
    assert list(probing.expired) == [THEIR_LEASE]
    leases.reads = 0
    assert await probing.living_holder(WebhookOwner(THEIRS, THEIR_LEASE)) == ""
    assert leases.reads == 1, "an expired Lease is not observed again"


async def test_observation_of_a_lease_is_logged_before_it_takes_its_time() -> None:
    """A start that waits says what it waits for; an expired Lease is not waited for again."""
    with capture_logs() as logs:
        probing, _, _ = await probe(Leases(lease("a\n", 0)))
        await probing.living_holder(WebhookOwner(THEIRS, THEIR_LEASE))
    (entry,) = logs
    assert entry["event"].startswith("Webhooks name another operator, checking whether it still")
    assert (entry["lease"], entry["holder"], entry["seconds"]) == (str(THEIR_LEASE), "a\\n", 15)


async def test_owner_without_lease_is_not_asked_for() -> None:
    leases = Leases(lease("a", 0))
    assert (
        await OwnerProbe(cast("Client", leases), FakeClock()).living_holder(WebhookOwner(URL)) == ""
    )
    assert leases.reads == 0


class Pods(Leases):
    """A missing or dead Lease, and a Service with ``endpoints``; ``None``: they may not be read."""

    def __init__(self, state: Object | None, endpoints: list[Object] | None) -> None:
        super().__init__(state)
        self.endpoints = endpoints

    async def create(self, _: Object) -> Object:
        return {"status": {"allowed": self.endpoints is not None}}

    async def list(self, *_: Any, **__: Any) -> list[Object]:
        return [{"endpoints": self.endpoints}]


@pytest.mark.parametrize(
    ("state", "endpoints", "holder"),
    [
        (None, [{}], "none, but the Service has ready pods"),
        (lease("a", 0), [{"conditions": {"ready": True}}], "none, but the Service has ready pods"),
        (None, [{"conditions": {"ready": False}}], ""),
        (None, None, ""),
    ],
)
async def test_operator_without_lease_is_alive_if_its_service_has_ready_pods(
    state: Object | None, endpoints: list[Object] | None, holder: str
) -> None:
    _, found, _ = await probe(Pods(state, endpoints), reads_endpoints=True)
    assert found == holder


def test_description_names_lease_and_holder() -> None:
    owner = WebhookOwner(THEIRS, THEIR_LEASE)
    assert described_owner(owner, "pod") == f"{THEIRS} (Lease theirs/lock, holder pod)"
    assert described_owner(WebhookOwner(URL), "") == URL


def test_second_overwrite_within_a_minute_is_refused_until_the_minute_has_passed() -> None:
    limit = OverwriteLimit()
    assert limit.delay("a", 0.0) == 0
    limit.wrote("a", 0.0)
    assert limit.delay("a", 10.0) == 0, "the first overwrite is corrected"
    limit.wrote("a", 10.0)
    assert limit.delay("a", 11.0) == OVERWRITE_WINDOW - 1
    assert [limit.claim_report() for _ in range(3)] == [True, False, False]
    assert limit.delay("b", 11.0) == 0, "another value is not an answer to an overwrite"
    assert limit.delay("a", 70.0) == 0
    limit.wrote("a", 70.0)
    assert limit.delay("a", 71.0) == OVERWRITE_WINDOW - 1
    assert limit.claim_report()


def test_failed_write_does_not_count_as_overwrite() -> None:
    limit = OverwriteLimit()
    limit.wrote("a", 0.0)
    assert [limit.delay("a", 1.0), limit.delay("a", 2.0)] == [0, 0]
