"""Every feature fulfills the contract, also in what no type checker sees: attributes, names and their modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from cfo.features import FEATURES, KINDS, OPTIONAL_ROLES
from cfo.features.contract import Feature, Kind, OptionalRole
from cfo.runtime import GVK, Rule


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_feature_is_a_kind_or_an_optional_role(feature: Feature) -> None:
    assert isinstance(feature, Kind | OptionalRole)
    assert feature.name
    assert feature.title


def test_names_of_features_are_unique() -> None:
    names = Counter(feature.name for feature in FEATURES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_kind_declares_its_kinds_and_has_a_folder_on_each_floor(kind: Kind) -> None:
    assert kind.gvks
    assert all(isinstance(gvk, GVK) for gvk in kind.gvks)
    assert kind.field_managers
    for room in ("api", "controllers", "webhooks", "summaries", "features"):
        assert find_spec(f"cfo.{room}.{kind.name}") is not None
    assert {view.gvk for view in kind.views()} == set(kind.gvks)
    assert set(kind.finalizers()) <= set(kind.gvks)


@pytest.mark.parametrize("role", OPTIONAL_ROLES, ids=lambda role: role.name)
def test_probe_is_a_permission_of_its_role_that_no_operator_without_the_role_has(
    role: OptionalRole,
) -> None:
    probe = _permissions([role.probe])
    assert probe <= _permissions(role.rules())
    for kind in KINDS:
        assert not probe & _permissions(kind.base_rules("ns"))


def _permissions(rules: Sequence[Rule]) -> set[tuple[str, str, str]]:
    found = set()
    for rule in rules:
        for resource in rule.resources:
            for verb in rule.verbs:
                found.add((rule.group, resource, verb))
    return found
