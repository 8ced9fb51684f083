"""Which defaults a stack is rendered with, and when newer ones are rolled out."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.profiles import PROFILES
from cfo.controllers.inferencestack.profile_choice import choose_profile, render_with
from cfo.controllers.inferencestack.rendering.facts import Facts
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.kinds import DEPLOYMENT
from cfo.runtime.objects.unstructured import Object, gvk_of, name_of
from test.support.inference_stacks import stack

OLD, NEW = PROFILES["v2.1"], PROFILES["v2.13"]
NAMES = [
    "s-inference-stack-a",
    "s-inference-stack-b",
    "s-inference-stack-c",
    "s-inference-stack-gateway",
]


def pinned(profile: str = "v2.1", *, observed: int | None = 1, **spec: Any) -> Object:
    obj = stack({"a": {}, "b": {}, "c": {}}, **spec)
    obj["metadata"]["generation"] = 1
    obj["status"] = {"profile": profile}
    if observed is not None:
        obj["status"]["observedGeneration"] = observed
    return obj


def deployments(obj: Object, **profiles: str) -> dict[str, Object]:
    """Return the Deployments of ``obj``: those of the applications in ``profiles`` have that profile, others v2.1."""
    found = {}
    for profile in set(profiles.values()) | {"v2.1"}:
        for item in render(obj, PROFILES[profile]):
            component = name_of(item).rpartition("-")[2]
            if gvk_of(item) == DEPLOYMENT and profiles.get(component, "v2.1") == profile:
                found[name_of(item)] = item
    return found


@pytest.mark.parametrize(
    ("obj", "upgraded", "expected"),
    [
        (stack({}), {}, (NEW, None)),
        (pinned("v2.13"), {}, (NEW, None)),
        (pinned(), {}, (OLD, None)),
        (pinned(observed=None), {}, (OLD, None)),
        (pinned(observed=7), {}, (OLD, NEW)),
        (pinned(upgradePolicy="Automatic"), {}, (OLD, NEW)),
        (pinned(), {"gateway": "v2.13"}, (OLD, NEW)),
    ],
)
def test_profile_changes_only_when_the_policy_allows_it(
    obj: Object, upgraded: dict[str, str], expected: tuple[Any, Any]
) -> None:
    assert (
        choose_profile(obj, "v2", deployments(obj, **upgraded) if obj.get("status") else {})
        == expected
    )


def test_applications_are_upgraded_one_after_the_other() -> None:
    obj = pinned(upgradePolicy="Automatic")
    upgraded: dict[str, str] = {}
    ready = set(NAMES)
    order = []
    for _ in range(6):
        live = deployments(obj, **upgraded)
        current, target = choose_profile(obj, "v2", live)
        desired, profile = render_with(obj, current, target, Facts(), live, ready.__contains__)
        expected = deployments(obj, **dict.fromkeys(("gateway", "a", "b", "c"), "v2.13"))
        changed = [
            name_of(item).rpartition("-")[2]
            for item in desired
            if gvk_of(item) == DEPLOYMENT
            and item["spec"] == expected[name_of(item)]["spec"]
            and upgraded.get(name_of(item).rpartition("-")[2]) != "v2.13"
        ]
        order.append((changed, profile.name))
        upgraded |= dict.fromkeys(changed, "v2.13")
        if not changed:
            ready = set(NAMES)
        else:
            ready -= {f"s-inference-stack-{name}" for name in changed}
    assert order == [
        (["gateway", "a"], "v2.1"),
        ([], "v2.1"),  # it is not ready yet
        (["b"], "v2.1"),
        ([], "v2.1"),
        (["c"], "v2.13"),
        ([], "v2.13"),
    ]
