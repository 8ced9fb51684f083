"""Tests of how KubeRay operators are recognized by their roles, and this operator by its token."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from cfo.controllers.raycluster.operator_namespaces import grants_status_update, service_account_of
from cfo.runtime.objects.unstructured import NamespacedName


@pytest.mark.parametrize(
    ("rule", "granted"),
    [
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["update"]}, True),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters", "rayclusters/status"],
                "verbs": ["*"],
            },
            True,
        ),
        ({"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["update"]}, True),
        ({"apiGroups": ["ray.io"], "resources": ["*/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["*"], "resources": ["rayclusters/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, False),
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["update"]}, False),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters/status"],
                "verbs": ["get", "patch"],
            },
            False,
        ),
        ({"apiGroups": ["other"], "resources": ["rayclusters/status"], "verbs": ["update"]}, False),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters/status"],
                "verbs": ["update"],
                "resourceNames": ["one"],
            },
            False,
        ),
        ({"nonResourceURLs": ["*"], "verbs": ["*"]}, False),
    ],
)
def test_role_that_updates_raycluster_status_is_of_kuberay_operator(
    rule: dict[str, Any], granted: bool
) -> None:
    assert grants_status_update({"rules": [{"verbs": ["get"]}, rule]}) is granted


def test_role_without_rules_grants_nothing() -> None:
    assert not grants_status_update({"rules": None})


def authorization_header(payload: bytes) -> str:
    """Return an Authorization header with a JWT of this payload."""
    return f"Bearer e30.{urlsafe_b64encode(payload).decode().rstrip('=')}.c2ln"


def test_service_account_is_read_from_token() -> None:
    account = service_account_of(
        authorization_header(b'{"sub":"system:serviceaccount:ns:me","aud":["x"]}')
    )
    assert account == NamespacedName("ns", "me")
    for authorization in (
        "",
        "Bearer opaque",
        "Bearer a.b.c",
        "Basic dTpw",
        authorization_header(b'{"sub":"alice"}'),
        authorization_header(b'{"sub":"not-system:serviceaccount:ns:me"}'),
        authorization_header(b'{"sub":"system:serviceaccount:ns"}'),
        authorization_header(b'{"sub":7}'),
        authorization_header(b"[]"),
        authorization_header(b"\xff"),
    ):
        assert service_account_of(authorization) is None
