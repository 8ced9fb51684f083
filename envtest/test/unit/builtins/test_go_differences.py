"""Differences in the errors about immutable fields, as kube-apiserver prints them."""

from __future__ import annotations

from typing import Any

from envtest.builtins.go_rendering import claim_spec_difference, difference, pod_spec_difference


def changes(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[:1] in "+-" and line.strip("+-")]


def test_pod_spec_has_the_names_and_unset_fields_of_the_internal_type() -> None:
    old: dict[str, Any] = {"containers": [{"name": "c"}], "nodeSelector": {"a": "b"}}
    old["securityContext"] = {}
    new = {"hostNetwork": True, **old, "nodeSelector": {"a": "c"}}
    new["containers"] = [{"command": ["x"], "name": "c"}]
    assert changes(pod_spec_difference(old, new)) == [
        '-   "Command": null,',
        '+   "Command": [',
        '+    "x"',
        "+   ],",
        '-  "a": "b"',
        '+  "a": "c"',
        '-  "HostNetwork": false,',
        '+  "HostNetwork": true,',
    ]


def test_claim_spec_has_the_names_and_unset_fields_of_the_internal_type() -> None:
    old = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    found = claim_spec_difference(old, {**old, "accessModes": ["ReadOnlyMany"]})
    assert found == (
        '@@ -1,6 +1,6 @@\n {\n  "AccessModes": [\n-  "ReadWriteOnce"\n+  "ReadOnlyMany"\n  ],\n'
        '  "Selector": null,\n  "Resources": {\n'
    )


def test_order_of_keys_is_no_difference() -> None:
    old = {"a": 1, "b": [{"c": 1, "d": 2}]}
    new = {"b": [{"d": 3, "c": 1}], "a": 1}
    assert changes(difference(old, new)) == ['-   "d": 2', '+   "d": 3']
    longer = {"b": [{"d": 2, "c": 1}, {}], "a": 1}
    assert changes(difference(old, longer)) == ["-  }", "+  },", "+  {}"]
