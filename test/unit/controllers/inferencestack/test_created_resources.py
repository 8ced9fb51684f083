"""The resources for which permissions are checked are exactly those of the rendered objects."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from cfo.api.inferencestack.created_resources import created_resources
from cfo.api.inferencestack.profiles import newest_profile
from cfo.api.inferencestack.resolution import resolve
from cfo.api.inferencestack.validation.stack import validate
from cfo.controllers.inferencestack.reconciler import InferenceStackReconciler
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.unstructured import gvk_of
from test.support.inference_stacks import stack

BUDGET = st.sampled_from([None, {}, {"minAvailable": 1}, {"maxUnavailable": "25%"}])
METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
SECTION = st.fixed_dictionaries(
    {
        "podDisruptionBudget": BUDGET,
        "cache": st.sampled_from([None, {"size": "1Gi"}]),
        "scaling": st.sampled_from(
            [
                None,
                {"enabled": False, "type": "HPA"},
                {"enabled": True},
                {"enabled": True, "type": "KEDA"},
                {"enabled": True, "type": "HPA", "metrics": [METRIC]},
            ]
        ),
    }
)
GATEWAY = st.fixed_dictionaries(
    {
        "podDisruptionBudget": BUDGET,
        "ingress": st.sampled_from(
            [None, {"enabled": False}, {"enabled": True, "hosts": [{"host": "h"}]}]
        ),
        "httpRoute": st.sampled_from([None, {"parentRefs": [{"name": "g"}]}]),
        "exportPrometheusMetrics": st.sampled_from([None, False, True]),
    }
)


@given(
    gateway=GATEWAY,
    template=SECTION,
    applications=st.dictionaries(st.sampled_from(["a", "b"]), SECTION),
    spec=st.fixed_dictionaries(
        {
            "serviceAccount": st.sampled_from([None, {"create": False}, {"create": True}]),
            "networkPolicy": st.sampled_from([None, {"enabled": False}, {"enabled": True}]),
            "suspend": st.sampled_from([None, False]),
        }
    ),
)
def test_permissions_are_checked_for_exactly_what_is_rendered(
    gateway: dict[str, Any],
    template: dict[str, Any],
    applications: dict[str, Any],
    spec: dict[str, Any],
) -> None:
    profile = newest_profile("v2")
    obj = stack(applications, gateway=gateway, applicationTemplate=template, **spec)
    assume(not validate(obj, profile).errors)  # such as an HPA of the template without metrics
    created = created_resources(resolve(obj, profile))
    assert {(gvr.group, gvr.version, gvr.resource[:6]) for gvr in created} == {
        (gvk.group, gvk.version, gvk.kind.lower()[:6]) for gvk in map(gvk_of, render(obj, profile))
    }
    granted = {
        (rule.group, resource)
        for rule in InferenceStackReconciler.rules
        if "create" in rule.verbs
        for resource in rule.resources
    }
    assert {(gvr.group, gvr.resource) for gvr in created} <= granted
    suspended = {**obj, "spec": {**obj["spec"], "suspend": True}}
    assert created_resources(resolve(suspended, profile)) == created, (
        "the objects exist once it is resumed"
    )
