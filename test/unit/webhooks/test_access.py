"""Access reviews for users whose objects make the operator create others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.field import Path
from cfo.runtime.objects.unstructured import GVK, GVR
from cfo.runtime.webhook.admission import AdmissionRequest, UserInfo
from cfo.webhooks import access
from cfo.webhooks.access import AccessReviewer
from cfo.webhooks.turns import MAX_REQUESTS
from test.support.api_server import ApiServer, json
from test.support.clocks import FakeClock

POD, JOB, NODE, THING = (
    GVK("", "v1", "Pod"),
    GVK("batch", "v1", "Job"),
    GVK("", "v1", "Node"),
    GVK("example.com", "v1", "Thing"),
)
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
A = Path("spec", "a")
ALICE = UserInfo("alice", "a-1", ("team", "system:authenticated"), {"scopes": ("x",)})


def group(name: str, *resources: tuple[str, str, bool], stale: bool = False) -> dict[str, Any]:
    """Return a group of an aggregated discovery document."""
    items = [
        {
            "resource": plural,
            "responseKind": {"group": name, "version": "v1", "kind": kind},
            "scope": "Namespaced" if namespaced else "Cluster",
            "verbs": ["create", "delete", "get"],
        }
        for kind, plural, namespaced in resources
    ]
    version = {"version": "v1", "freshness": "Stale" if stale else "Current", "resources": items}
    return {"metadata": {"name": name}, "versions": [version]}


def discovery(*groups: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": list(groups),
    }


CORE = discovery(group("", ("Pod", "pods", True), ("Node", "nodes", False)))
OTHER_GROUPS = (
    group("batch", ("Job", "jobs", True)),
    group("authorization.k8s.io", ("SubjectAccessReview", "subjectaccessreviews", False)),
)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().run() as server:
        server.answer("GET", "/api", CORE)
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Transport(ClientConfig(server=server.url)) as transport:
        yield Client(transport, RESTMapper(transport), field_manager="test")


def request_of(user: UserInfo) -> AdmissionRequest:
    return AdmissionRequest(namespace="ns", user_info=user)


def reviews(server: ApiServer) -> list[Any]:
    return [request.body for request in server.all_requests if request.path == REVIEWS]


async def allow_pods(request: web.Request) -> web.StreamResponse:
    review = await request.json()
    allowed = review["spec"]["resourceAttributes"]["resource"] == "pods"
    return web.json_response({**review, "status": {"allowed": allowed}}, status=201)


async def test_access_to_each_kind_is_reviewed_once_for_the_user(
    server: ApiServer, client: Client
) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, allow_pods)
    found = await AccessReviewer(client, check_permissions=True).review(
        [POD, JOB, NODE, THING, POD, JOB], request_of(ALICE)
    )
    assert found[POD].resource is not None
    assert (found[POD].denial, found[POD].failure) == ("", "")
    assert found[JOB].denial == "User alice is not authorized to create jobs in ns"
    node = found[NODE].resource
    assert node is not None
    assert not node.namespaced
    assert (found[THING].resource, found[THING].failure) == (None, "")
    requests = sorted(
        (review["spec"] for review in reviews(server)),
        key=lambda spec: spec["resourceAttributes"]["group"],
    )
    assert requests == [
        {
            "resourceAttributes": {
                "namespace": "ns",
                "verb": "create",
                "group": gvk.group,
                "version": "v1",
                "resource": plural,
            },
            "user": "alice",
            "uid": "a-1",
            "groups": ["team", "system:authenticated"],
            "extra": {"scopes": ["x"]},
        }
        for gvk, plural in ((POD, "pods"), (JOB, "jobs"))
    ]


async def test_kinds_are_resolved_without_permission_check(
    server: ApiServer, client: Client
) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    found = await AccessReviewer(client, check_permissions=False).review(
        [JOB, THING], request_of(ALICE)
    )
    assert found[JOB].resource is not None
    assert found[THING].resource is None
    assert reviews(server) == []


async def test_reviews_are_sent_concurrently(server: ApiServer, client: Client) -> None:
    arrived = asyncio.Barrier(2)

    async def allow_pods_when_both_arrived(request: web.Request) -> web.StreamResponse:
        await arrived.wait()
        return await allow_pods(request)

    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, allow_pods_when_both_arrived)
    async with asyncio.timeout(120):
        found = await AccessReviewer(client, check_permissions=True).review(
            [POD, JOB], request_of(ALICE)
        )
    assert found[JOB].denial


async def test_failed_review_is_not_a_denial(server: ApiServer, client: Client) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS, group("example.com", stale=True)))
    denial = {
        "kind": "Status",
        "code": 403,
        "reason": "Forbidden",
        "message": "the operator is not allowed to review access",
    }
    server.answer("POST", REVIEWS, json(denial, code=403))
    found = await AccessReviewer(client, check_permissions=True).review(
        [POD, THING], request_of(ALICE)
    )
    assert (found[POD].resource, found[POD].denial) == (None, "")
    assert "the operator is not allowed to review access" in found[POD].failure
    assert (
        found[THING].failure == "example.com/v1 is registered, but its API server does not respond"
    )


async def test_resources_that_are_not_served_are_reviewed_once_for_each_group_and_resource(
    server: ApiServer, client: Client
) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, allow_pods)
    routes = GVR("gateway.networking.k8s.io", "v1", "httproutes")
    resources = {
        GVR("", "v1", "pods"): Path("spec"),
        routes: Path("spec", "route"),
        routes._replace(version="v2"): A,
    }
    errors = await AccessReviewer(client, check_permissions=True).errors(
        resources, request_of(ALICE)
    )
    assert {(error.field, error.reason) for error in errors} == {
        ("spec.route", "FieldValueForbidden"),
        ("spec.a", "FieldValueForbidden"),
    }
    assert (
        "User alice is not authorized to create httproutes in ns, which the operator"
        in errors[0].detail
    )
    assert len(reviews(server)) == 2
    assert (
        await AccessReviewer(client, check_permissions=False).errors(resources, request_of(ALICE))
        == []
    )
    assert len(reviews(server)) == 2


async def test_object_is_refused_if_a_review_fails(server: ApiServer, client: Client) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer(
        "POST", REVIEWS, json({"kind": "Status", "code": 403, "reason": "Forbidden"}, code=403)
    )
    (error,) = await AccessReviewer(client, check_permissions=True).errors(
        {GVR("", "v1", "pods"): A}, request_of(ALICE)
    )
    assert (error.reason, error.field) == ("InternalError", "spec.a")


async def test_reviewers_share_the_answers_of_one_review(server: ApiServer, client: Client) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, allow_pods)
    reviewer, request = AccessReviewer(client, check_permissions=True), request_of(ALICE)
    await reviewer.review([POD, JOB], request)
    for _ in range(3):
        (error,) = await AccessReviewer(client, check_permissions=True).errors(
            {GVR("", "v1", "pods"): Path("spec"), GVR("batch", "v1", "jobs"): A}, request
        )
        assert error.field == "spec.a"
    assert len(reviews(server)) == 2


async def test_nothing_is_allowed_before_the_answer(server: ApiServer, client: Client) -> None:
    """Two reviews of one request share their results, also while the first one waits."""
    asked = asyncio.Event()
    answered = asyncio.Event()

    async def answer_later(request: web.Request) -> web.StreamResponse:
        asked.set()
        await answered.wait()
        return await allow_pods(request)

    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, answer_later)
    reviewer = AccessReviewer(client, check_permissions=True)
    request = request_of(ALICE)
    resources = {GVR("batch", "v1", "jobs"): A}
    first = asyncio.create_task(reviewer.errors(resources, request))
    await asked.wait()
    second = asyncio.create_task(reviewer.errors(resources, request))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    answered.set()
    for errors in await asyncio.gather(first, second):
        assert [error.reason for error in errors] == ["FieldValueForbidden"]


async def test_answers_are_remembered_for_two_seconds(server: ApiServer, client: Client) -> None:
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, allow_pods)
    clock = FakeClock()
    reviewer = AccessReviewer(client, check_permissions=True, clock=clock)
    for _ in range(3):
        found = await reviewer.review([POD, JOB], request_of(ALICE))
        assert (found[POD].denial, bool(found[JOB].denial)) == ("", True)
    assert len(reviews(server)) == 2
    for name in ("credential-id", "node-name", "node-uid", "pod-name", "pod-uid"):
        with_token = {**ALICE.extra, f"authentication.kubernetes.io/{name}": (f"{name}-1",)}
        another_token = UserInfo(ALICE.username, ALICE.uid, ALICE.groups, with_token)
        await reviewer.review([POD, JOB], request_of(another_token))
        assert len(reviews(server)) == 2
    await reviewer.review([POD], request_of(UserInfo("bob", "", ALICE.groups)))
    await reviewer.review([POD], request_of(UserInfo("alice", "a-2", ALICE.groups)))
    await reviewer.review([POD], AdmissionRequest(namespace="other", user_info=ALICE))
    assert len(reviews(server)) == 5
    clock.advance(2)
    await reviewer.review([POD], request_of(ALICE))
    assert len(reviews(server)) == 6


async def test_oldest_answers_are_forgotten_first(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any pod can ask for any user."""
    monkeypatch.setattr(access, "_MAX_ANSWERS", 2)
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS))
    server.answer("POST", REVIEWS, allow_pods)
    reviewer = AccessReviewer(client, check_permissions=True, clock=FakeClock())
    for name in ("a", "b", "c", "b", "c", "a"):
        await reviewer.review([POD], request_of(UserInfo(name)))
    assert [review["spec"]["user"] for review in reviews(server)] == ["a", "b", "c", "a"]


async def test_reviews_together_send_few_requests(server: ApiServer, client: Client) -> None:
    in_flight: list[int] = []
    running = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal running
        running += 1
        in_flight.append(running)
        await asyncio.sleep(0.01)
        running -= 1
        return await allow_pods(request)

    kinds = [GVK("example.com", "v1", f"Kind{number}") for number in range(30)]
    served = [(kind.kind, kind.kind.lower(), True) for kind in kinds]
    server.answer("GET", "/apis", discovery(*OTHER_GROUPS, group("example.com", *served)))
    server.answer("POST", REVIEWS, answer)
    reviewer = AccessReviewer(client, check_permissions=True)

    async def review(number: int) -> None:
        user = UserInfo(f"user-{number}")
        found = await reviewer.review(
            kinds, AdmissionRequest(namespace=f"ns-{number}", user_info=user)
        )
        assert len(found) == len(kinds)

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(review(number))
    assert (len(in_flight), max(in_flight)) == (300, MAX_REQUESTS)
