"""How ``cfo run --embedded`` prepares the objects that it applies."""

from __future__ import annotations

import pytest

from cfo.console.demo.run import CONFIGURATION, take_configuration
from cfo.runtime import NamespacedName, Object

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
