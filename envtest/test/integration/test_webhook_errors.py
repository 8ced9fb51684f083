"""The order of the errors of webhook configurations, as kube-apiserver 1.36 reports them."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

API = "/apis/admissionregistration.k8s.io/v1"
WEBHOOK: dict[str, Any] = {
    "name": "a",
    "clientConfig": {},
    "rules": [{"operations": ["X"], "apiGroups": [""], "apiVersions": [], "resources": ["pods"]}],
    "sideEffects": "Some",
    "admissionReviewVersions": [],
    "timeoutSeconds": 99,
    "namespaceSelector": {"matchLabels": {"a b": "c"}},
    "matchConditions": [{"name": "", "expression": "true"}],
}


@pytest.mark.parametrize(
    ("plural", "fields"),
    [
        ("validatingwebhookconfigurations", {}),
        ("mutatingwebhookconfigurations", {"reinvocationPolicy": "X"}),
    ],
)
async def test_errors_of_a_webhook_are_in_order(plural: str, fields: dict[str, str]) -> None:
    body = {"metadata": {"name": "w"}, "webhooks": [{**WEBHOOK, **fields}]}
    async with ControlPlane.auto(controllers=()) as plane, APIClient(plane) as client:
        response = await client.post(f"{API}/{plural}", body)
    assert response.code == 422, response
    causes = [cause["field"] for cause in response.body["details"]["causes"]]
    assert causes == [
        f"webhooks[0].{name}"
        for name in (
            "name",
            "rules[0].operations[0]",
            "rules[0].apiVersions",
            "sideEffects",
            "timeoutSeconds",
            "namespaceSelector.matchLabels",
            *fields,
            "clientConfig",
            "matchConditions[0].name",
            "admissionReviewVersions",
        )
    ]
