"""Names of a stack's objects."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.names import is_retained, names_of
from test.support.inference_stacks import stack


@pytest.mark.parametrize(
    ("name", "spec", "fullname", "account"),
    [
        ("prod", {}, "prod-inference-stack", "prod-inference-stack"),
        ("my-inference-stack", {}, "my-inference-stack", "my-inference-stack"),
        ("prod", {"fullnameOverride": "x"}, "x", "x"),
        ("prod", {"nameOverride": "llm"}, "prod-llm", "prod-llm"),
        ("llm-prod", {"nameOverride": "llm"}, "llm-prod", "llm-prod"),
        ("prod", {"serviceAccount": {"create": False}}, "prod-inference-stack", "default"),
        ("prod", {"serviceAccount": {"create": False, "name": "a"}}, "prod-inference-stack", "a"),
        ("prod", {"serviceAccount": {"name": "a"}}, "prod-inference-stack", "a"),
        (
            "prod",
            {"fullnameOverride": None, "serviceAccount": None},
            "prod-inference-stack",
            "prod-inference-stack",
        ),
        ("a" * 62, {}, "a" * 62, "a" * 62),
    ],
)
def test_names_equal_those_of_the_chart(
    name: str, spec: dict[str, Any], fullname: str, account: str
) -> None:
    names = names_of(stack(name=name, **spec))
    assert (names.fullname, names.service_account) == (fullname, account)
    assert (names.gateway, names.application("a")) == (f"{fullname}-gateway", f"{fullname}-a")


def test_selector_has_the_labels_of_the_chart() -> None:
    assert names_of(stack(name="prod", nameOverride="llm")).selector("gateway") == {
        "app.kubernetes.io/component": "gateway",
        "app.kubernetes.io/name": "llm",
        "app.kubernetes.io/instance": "prod",
    }


def test_only_a_volume_is_retained() -> None:
    metadata = {"annotations": {"inference-stack-operator/retained": "true"}}
    assert is_retained({"kind": "PersistentVolumeClaim", "metadata": metadata})
    assert not is_retained({"kind": "PersistentVolumeClaim", "metadata": {}})
    assert not is_retained({"kind": "ServiceAccount", "metadata": metadata}), (
        "a user set serviceAccount.annotations"
    )
