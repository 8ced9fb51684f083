"""Which namespaces have an operator according to what only an administrator can create."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.console.operator_namespaces import (
    bound_namespaces,
    marked_operator,
    namespaces_of_services,
    operator_namespaces,
)
from cfo.manifests.names import SERVICE_ACCOUNT
from cfo.runtime.webhook.ownership import OPERATOR_ANNOTATION, OperatorMark

URL = "https://[::1]:9443"


def binding(
    account: str = SERVICE_ACCOUNT, role: str = "manager", kind: str = "ServiceAccount"
) -> dict[str, Any]:
    return {
        "roleRef": {"name": role},
        "subjects": [{"kind": kind, "namespace": "ns", "name": account}],
    }


@pytest.mark.parametrize(
    ("bindings", "found"),
    [
        ([binding()], {"ns"}),
        ([binding(role="system:auth-delegator")], set()),  # as for a notebook of this name
        ([binding(role="system:auth-delegator"), binding()], {"ns"}),
        ([binding("rc-oauth-proxy-1234")], set()),
        ([binding(kind="User")], set()),
        ([{}, {"subjects": None}, {"subjects": [None], "roleRef": None}], set()),
    ],
)
def test_namespace_is_bound_by_the_permissions_of_an_operator(
    bindings: list[dict[str, Any]], found: set[str]
) -> None:
    assert bound_namespaces(bindings) == found


def webhooks(*configs: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "v"},
        "webhooks": [
            {"name": "vraycluster.ray.openshift.ai", "clientConfig": config} for config in configs
        ],
    }


def test_only_webhooks_with_a_service_have_its_namespace() -> None:
    configuration = webhooks({"service": {"namespace": "ops"}}, {"url": URL})
    foreign = {"name": "v.example.com", "clientConfig": {"service": {"namespace": "other"}}}
    configuration["webhooks"].append(foreign)
    assert namespaces_of_services(configuration) == {"ops"}


def marked(url: str) -> dict[str, Any]:
    configuration = webhooks({"url": url})
    mark = OperatorMark(URL, "laptop", "lock").encode()
    configuration["metadata"]["annotations"] = {OPERATOR_ANNOTATION: mark}
    return configuration


def test_namespaces_of_operators_are_those_that_an_administrator_has_named() -> None:
    proxy = binding("rc-oauth-proxy", role="system:auth-delegator")
    proxy["subjects"][0]["namespace"] = "tenant"
    configurations = [webhooks({"service": {"namespace": "ops"}}), marked(f"{URL}/path")]
    assert operator_namespaces([binding(), proxy], configurations) == {"ns", "ops", "laptop"}


@pytest.mark.parametrize(("url", "found"), [(f"{URL}/path", ("laptop", URL)), ("https://a/", None)])
def test_mark_counts_for_webhooks_at_its_address(url: str, found: tuple[str, str] | None) -> None:
    assert marked_operator(marked(url)) == found
