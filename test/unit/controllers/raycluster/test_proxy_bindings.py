"""Tests of how the OAuth controller recognizes its ClusterRoleBindings."""

from __future__ import annotations

from cfo.controllers.raycluster.proxy_bindings import is_oauth_proxy_binding


def test_oauth_proxy_binding_has_subjects_of_one_namespace() -> None:
    role = {"name": "system:auth-delegator"}
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "ns"}
    assert is_oauth_proxy_binding({"roleRef": role, "subjects": [subject]}, "ns")
    assert not is_oauth_proxy_binding({"roleRef": {"name": "view"}, "subjects": [subject]}, "ns")
    assert not is_oauth_proxy_binding(
        {"roleRef": role, "subjects": [subject, {**subject, "namespace": "other"}]}, "ns"
    )
    assert not is_oauth_proxy_binding(
        {"roleRef": role, "subjects": [{"kind": "User", "name": "a"}]}, "ns"
    )
