"""Review APIs and token requests: results, and rejection of invalid reviews with causes."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import Object
from envtest.auth.authenticator import Authenticator
from envtest.auth.bootstrap import install_policy
from envtest.auth.rbac import RBACAuthorizer
from envtest.auth.reviews import Reviews
from envtest.auth.token_request import request_token
from envtest.auth.tokens import ISSUER, ServiceAccountTokens
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy
from envtest.storage import Store

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
ALICE = User("alice", "1", ("team-a", "system:authenticated"))
PODS = {"verb": "get", "resource": "pods"}
VERSION = {"verb": "get", "path": "/version"}


@pytest.fixture
def store() -> Store:
    store = Store()
    install_policy(store, "2026-01-01T00:00:00Z")
    store_object(store, "ServiceAccount", "serviceaccounts", "bot", "u1")
    return store


def store_object(store: Store, kind: str, plural: str, name: str, uid: str, **fields: Any) -> None:
    metadata = {
        "namespace": "a",
        "name": name,
        "uid": uid,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    store.create(
        GroupResource("", plural),
        {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields},
    )


@pytest.fixture
def tokens(store: Store) -> ServiceAccountTokens:
    return ServiceAccountTokens(store)


@pytest.fixture
def reviews(store: Store, tokens: ServiceAccountTokens) -> Reviews:
    return Reviews(RBACAuthorizer(store), Authenticator(tokens, users={"alice-token": ALICE}))


def create_review(
    reviews: Reviews,
    group: str,
    plural: str,
    *,
    user: User = ALICE,
    namespace: str = "",
    **obj: Any,
) -> Object:
    info = ResourceInfo(group, "v1", plural, plural[:-1], plural, bool(namespace), Strategy())
    return reviews.complete(RequestContext(user, "create", info, namespace, ""), obj)


def causes(error: pytest.ExceptionInfo[StatusError]) -> list[tuple[str, str]]:
    assert error.value.code == 422
    assert error.value.details is not None
    return [(each["field"], each["message"]) for each in error.value.details["causes"]]


def test_access_reviews_report_decision(reviews: Reviews) -> None:
    response = create_review(
        reviews, AUTHORIZATION, "selfsubjectaccessreviews", spec={"resourceAttributes": PODS}
    )
    assert response["status"] == {"allowed": False}
    response = create_review(
        reviews, AUTHORIZATION, "selfsubjectaccessreviews", spec={"nonResourceAttributes": VERSION}
    )
    assert response["status"]["allowed"]
    assert response["status"]["reason"].startswith("RBAC: allowed by ClusterRoleBinding")
    spec = {"user": "x", "groups": ["system:masters"], "resourceAttributes": PODS}
    assert create_review(reviews, AUTHORIZATION, "subjectaccessreviews", spec=spec)["status"] == {
        "allowed": True
    }
    local = {
        "user": "x",
        "groups": ["system:masters"],
        "resourceAttributes": {**PODS, "namespace": "a"},
    }
    response = create_review(
        reviews,
        AUTHORIZATION,
        "localsubjectaccessreviews",
        namespace="a",
        metadata={"namespace": "a"},
        spec=local,
    )
    assert response["status"] == {"allowed": True}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"user": "x"},
            [
                (
                    "spec.resourceAttributes",
                    "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )
            ],
        ),
        (
            {"user": "x", "resourceAttributes": PODS, "nonResourceAttributes": VERSION},
            [
                (
                    "spec.nonResourceAttributes",
                    (
                        'Invalid value: {"Path":"/version","Verb":"get"}: '
                        "cannot be specified in combination with resourceAttributes"
                    ),
                )
            ],
        ),
        (
            {"resourceAttributes": PODS},
            [("spec.user", 'Invalid value: "": at least one of user or group must be specified')],
        ),
    ],
)
def test_access_review_requires_one_kind_of_attributes_and_a_subject(
    reviews: Reviews, spec: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    with pytest.raises(StatusError) as error:
        create_review(reviews, AUTHORIZATION, "subjectaccessreviews", spec=spec)
    assert causes(error) == expected


def test_review_with_metadata_is_rejected(reviews: Reviews) -> None:
    entry = {"fieldsV1": {"f:spec": {}}, "manager": "m", "operation": "Update"}
    metadata = {"managedFields": [entry], "name": "named"}
    with pytest.raises(StatusError) as error:
        create_review(
            reviews,
            AUTHORIZATION,
            "selfsubjectaccessreviews",
            metadata=metadata,
            spec={"resourceAttributes": PODS},
        )
    metadata_json = '{"name":"named","managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:spec":{}}}]}'
    assert causes(error) == [("metadata", f"Invalid value: {metadata_json}: must be empty")]


def test_local_review_of_another_namespace_is_rejected(reviews: Reviews) -> None:
    spec = {"user": "x", "resourceAttributes": {**PODS, "namespace": "b"}}
    with pytest.raises(StatusError) as error:
        create_review(
            reviews,
            AUTHORIZATION,
            "localsubjectaccessreviews",
            namespace="a",
            metadata={"namespace": "a"},
            spec=spec,
        )
    assert causes(error) == [
        ("spec.resourceAttributes.namespace", 'Invalid value: "b": must match metadata.namespace')
    ]


def test_rules_review_lists_permissions_of_the_user(reviews: Reviews) -> None:
    status = create_review(
        reviews, AUTHORIZATION, "selfsubjectrulesreviews", spec={"namespace": "a"}
    )["status"]
    assert status["incomplete"] is False
    assert {
        "verbs": ["create"],
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
    } in status["resourceRules"]
    assert any("/version" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    with pytest.raises(StatusError, match="no namespace on request"):
        create_review(reviews, AUTHORIZATION, "selfsubjectrulesreviews", spec={})


def test_token_review_authenticates_token(reviews: Reviews) -> None:
    known = create_review(reviews, AUTHENTICATION, "tokenreviews", spec={"token": "alice-token"})[
        "status"
    ]
    assert known["authenticated"]
    assert (known["user"]["username"], known["audiences"]) == ("alice", [ISSUER])
    unknown = create_review(reviews, AUTHENTICATION, "tokenreviews", spec={"token": "nonsense"})[
        "status"
    ]
    assert unknown == {"user": {}, "error": "invalid bearer token"}
    with pytest.raises(StatusError, match="token is required for TokenReview in authentication"):
        create_review(reviews, AUTHENTICATION, "tokenreviews", spec={})


def test_self_review_returns_the_user(reviews: Reviews) -> None:
    response = create_review(
        reviews, AUTHENTICATION, "selfsubjectreviews", metadata={"managedFields": []}
    )
    assert response["status"]["userInfo"] == {
        "username": "alice",
        "uid": "1",
        "groups": ["team-a", "system:authenticated"],
    }
    assert list(response["metadata"]) == ["creationTimestamp"]


def create_token(
    store: Store, tokens: ServiceAccountTokens, spec: dict[str, Any], name: str = "bot"
) -> Object:
    info = ResourceInfo(
        "", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", True, Strategy()
    )
    ctx = RequestContext(ALICE, "create", info, "a", name, subresource="token")
    return request_token(store, tokens, ctx, {"spec": spec})


def test_token_request_issues_token(store: Store, tokens: ServiceAccountTokens) -> None:
    response = create_token(store, tokens, {"expirationSeconds": 600})
    assert response["metadata"]["uid"] == "u1"
    assert response["spec"] == {
        "audiences": [ISSUER],
        "expirationSeconds": 600,
        "boundObjectRef": None,
    }
    user, _ = tokens.authenticate(response["status"]["token"])
    assert user.name == "system:serviceaccount:a:bot"


def test_token_can_be_bound_to_a_pod_of_the_account(
    store: Store, tokens: ServiceAccountTokens
) -> None:
    store_object(store, "Pod", "pods", "p", "pu", spec={"serviceAccountName": "bot"})
    store_object(store, "Pod", "pods", "foreign", "fu", spec={"serviceAccountName": "other"})
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    response = create_token(store, tokens, {"boundObjectRef": reference})
    user, _ = tokens.authenticate(response["status"]["token"])
    assert user.extra["authentication.kubernetes.io/pod-uid"] == ("pu",)
    with pytest.raises(StatusError, match="to pod running with different serviceaccount name"):
        create_token(store, tokens, {"boundObjectRef": {**reference, "name": "foreign"}})
    with pytest.raises(StatusError, match="does not match the UID in record") as error:
        create_token(store, tokens, {"boundObjectRef": {**reference, "uid": "other"}})
    assert error.value.code == 409


@pytest.mark.parametrize(
    ("spec", "code", "problem"),
    [
        ({"expirationSeconds": 10}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**33}, 422, "may not specify a duration larger than"),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "no"}},
            404,
            'pods "no" not found',
        ),
        (
            {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "X", "name": "no"}},
            400,
            "cannot bind token to object of type apps/v1, Kind=X",
        ),
        (
            {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Pod", "name": "no"}},
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
        ({"boundObjectRef": {"kind": "Node", "name": "no"}}, 404, 'nodes "no" not found'),
        ({"boundObjectRef": {"kind": "Pod"}}, 400, "Name parameter required."),
    ],
)
def test_invalid_token_requests_are_rejected(
    store: Store, tokens: ServiceAccountTokens, spec: dict[str, Any], code: int, problem: str
) -> None:
    with pytest.raises(StatusError, match=problem) as error:
        create_token(store, tokens, spec)
    assert error.value.code == code


def test_token_request_for_missing_account_is_rejected(
    store: Store, tokens: ServiceAccountTokens
) -> None:
    with pytest.raises(StatusError, match='serviceaccounts "no" not found'):
        create_token(store, tokens, {}, name="no")
