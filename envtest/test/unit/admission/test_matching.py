"""Matching of requests with webhooks and policies: rules, selectors, match conditions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import User
from envtest.admission.conditions import MatchConditions, authorization_check, request_variables
from envtest.admission.matching import Matcher, Rule, label_selector
from envtest.admission.review import admission_request
from envtest.apimachinery.errors import GroupResource
from envtest.auth.rbac import RBACAuthorizer
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext, ResourceInfo, Strategy
from envtest.storage import Store
from test.support.admission import (
    ADMIN,
    NAMESPACES,
    NODES,
    PODS,
    config_map,
    context,
    store_object,
)


@pytest.fixture
def store() -> Store:
    store = Store()
    store_object(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (None, {}, True),
        ({}, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
            {"a": "c"},
            True,
        ),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        (
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
            {"a": "b"},
            False,
        ),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ],
)
def test_label_selector_matches_labels(
    selector: dict[str, Any] | None, labels: dict[str, str], expected: bool
) -> None:
    assert label_selector(selector).matches(labels) is expected


def rule(**fields: Any) -> Rule:
    return Rule(
        {
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "operations": ["*"],
            "resources": ["*"],
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("rule_under_test", "ctx", "expected"),
    [
        (rule(), context(), True),
        (rule(operations=["UPDATE"]), context(), False),
        (rule(apiGroups=["apps"]), context(), False),
        (rule(apiVersions=["v2"]), context(), False),
        (rule(resources=["configmaps"]), context(), True),
        (rule(resources=["*"]), context(PODS, "UPDATE", subresource="status"), False),
        (rule(resources=["*/*"]), context(PODS, "UPDATE", subresource="status"), True),
        (rule(resources=["pods/*"]), context(PODS, "UPDATE", subresource="status"), True),
        (rule(resources=["pods/*"]), context(PODS, "UPDATE"), True),
        (rule(resources=["*/status"]), context(PODS, "UPDATE"), False),
        (rule(scope="Namespaced"), context(NODES), False),
        (rule(scope="Cluster"), context(NODES), True),
        (rule(scope="Cluster"), context(), False),
        (rule(scope="Cluster"), context(NAMESPACES), True),
        (rule(resourceNames=["y"]), context(), False),
        (rule(resourceNames=["x"]), context(), True),
    ],
)
def test_rule_matches_request(rule_under_test: Rule, ctx: RequestContext, expected: bool) -> None:
    assert rule_under_test.matches(ctx, {}, ctx.info) is expected


def test_namespace_selector_matches_labels_of_namespace(store: Store) -> None:
    matcher = Matcher(store, Registry())
    one, two = (
        label_selector({"matchLabels": {"team": "one"}}),
        label_selector({"matchLabels": {"team": "two"}}),
    )
    assert matcher.namespace_matches(context(), config_map(), one)
    assert not matcher.namespace_matches(context(), config_map(), two)
    assert matcher.namespace_matches(context(NODES), {}, two)
    new_namespace = {"metadata": {"name": "b", "labels": {"team": "two"}}}
    assert matcher.namespace_matches(context(NAMESPACES, name="b"), new_namespace, two)
    assert not matcher.namespace_matches(context(NAMESPACES, "DELETE", name="a"), {}, two)


def test_object_selector_matches_old_or_new_object() -> None:
    selector = label_selector({"matchLabels": {"hook": "me"}})
    assert Matcher.object_matches(config_map(), config_map(hook="me"), selector)
    assert Matcher.object_matches(config_map(hook="me"), None, selector)
    assert not Matcher.object_matches({}, config_map(), selector)


def test_equivalent_resources_match_only_with_match_policy_equivalent(store: Store) -> None:
    registry = Registry()
    storage = GroupResource("acme.io", "widgets")
    old = ResourceInfo(
        "acme.io", "v1", "widgets", "widget", "Widget", True, Strategy(), storage=storage
    )
    new = ResourceInfo(
        "acme.io", "v2", "widgets", "widget", "Widget", True, Strategy(), storage=storage
    )
    registry.register(old)
    registry.register(new)
    rules = [rule(apiGroups=["acme.io"], apiVersions=["v1"])]
    match = Matcher(store, registry).match_rules(context(new), {}, rules, equivalent=True)
    assert match is not None
    assert match.info is old
    assert Matcher(store, registry).match_rules(context(new), {}, rules, equivalent=False) is None


TRUE, FALSE, BROKEN = (
    "object.metadata.name == 'x'",
    "request.userInfo.username != 'admin'",
    "object.spec.missing == 1",
)


@pytest.mark.parametrize(
    ("expressions", "ignore", "matches", "failed"),
    [
        ([TRUE], False, True, False),
        ([TRUE, FALSE], False, False, False),
        ([BROKEN, FALSE], False, False, False),
        ([TRUE, BROKEN], False, False, True),
        ([TRUE, BROKEN], True, False, False),
        (["1 +"], False, False, True),
        (["oldObject == null && request.operation == 'CREATE'"], False, True, False),
    ],
)
def test_match_conditions_decide_and_report_errors(
    store: Store, expressions: list[str], ignore: bool, matches: bool, failed: bool
) -> None:
    conditions = MatchConditions(
        [{"name": "n", "expression": each} for each in expressions], ignore_errors=ignore
    )
    ctx = context()
    variables = request_variables(admission_request(ctx, config_map(), None), ctx)
    result = conditions.evaluate(variables, authorization_check(RBACAuthorizer(store), ctx.user))
    assert (result.matches, bool(result.error)) == (matches, failed)


def test_expressions_can_call_the_authorizer(store: Store) -> None:
    store_object(store, "v1", "Secret", "secrets", "s", namespace="a")
    secrets = "authorizer.group('').resource('secrets').namespace('a').check('get').allowed()"
    path = "authorizer.path('/metrics').check('get').allowed()"
    for expression, user, expected in (
        (secrets, ADMIN, True),
        (secrets, User("alice"), False),
        (path, ADMIN, True),
        ("authorizer.requestResource.check('create').allowed()", ADMIN, True),
        (secrets.replace(".check(", ".labelSelector('a=b').check("), ADMIN, True),
        (
            "!authorizer.serviceAccount('a', 'bot').group('').resource('secrets').check('get').allowed()",
            ADMIN,
            True,
        ),
    ):
        ctx = context(user=user)
        variables = request_variables(admission_request(ctx, config_map(), None), ctx)
        conditions = MatchConditions([{"name": "n", "expression": expression}], ignore_errors=False)
        result = conditions.evaluate(variables, authorization_check(RBACAuthorizer(store), user))
        assert (result.matches, result.error) == (expected, ""), expression
