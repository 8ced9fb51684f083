"""How ``cfo run --embedded`` prepares the objects that it applies."""

from __future__ import annotations

import pytest

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo.run import CONFIGURATION, demo_views, take_configuration
from cfo.runtime import GVK, NamespacedName, Object
from cfo.summaries.kind_view import Related

KEY = NamespacedName("default", "codeflare-operator-config")
OTHER: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "other"},
    "data": {"a": "b"},
}


@pytest.mark.parametrize("namespace", [{}, {"namespace": "default"}])
def test_operator_starts_with_its_own_config_map(namespace: dict[str, str]) -> None:
    data = {"config.yaml": "kuberay: {}"}
    own: Object = {**OTHER, "metadata": {"name": KEY.name, **namespace}, "data": data}
    objects = [OTHER, own]
    assert take_configuration(objects, KEY) == data
    assert objects == [OTHER]


def test_default_configuration_is_used_without_config_map() -> None:
    elsewhere: Object = {**OTHER, "metadata": {"name": KEY.name, "namespace": "other"}}
    objects = [OTHER, elsewhere]
    assert take_configuration(objects, KEY) == {"config.yaml": CONFIGURATION}
    assert objects == [OTHER, elsewhere]


@pytest.mark.parametrize(
    ("gvk", "is_simulated"), [(INFERENCE_STACKS[1], True), (RAY_CLUSTER, False)]
)
def test_simulated_queue_is_not_looked_up(gvk: GVK, *, is_simulated: bool) -> None:
    """While its pods wait, a stack would otherwise have the problem that Kueue is not installed."""
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    queued: Object = {"metadata": {"name": "one", "namespace": "ns", "labels": labels}}
    (view,) = (view for view in demo_views() if view.gvk == gvk)
    queue = "" if view.queue is None else view.queue(queued, Related())
    assert queue == ("" if is_simulated else "team")
