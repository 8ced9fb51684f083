"""Every feature fulfills the contract, also in what no type checker sees: attributes, names and their modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import combinations, product

import pytest

from cfo.features import FEATURES, KINDS, OPTIONAL_ROLES
from cfo.features.contract import Feature, Kind, OptionalRole
from cfo.manifests import rbac
from cfo.runtime import GVK, Object, Rule


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
    assert {view.gvk for view in kind.views() if view.is_in_operator} == set(kind.gvks)
    assert all("/" in finalizer for finalizer in kind.finalizers().values())


@pytest.mark.parametrize("role", OPTIONAL_ROLES, ids=lambda role: role.name)
def test_probes_are_allowed_only_if_no_permission_of_the_role_is_missing(
    role: OptionalRole,
) -> None:
    """The generated ClusterRoles of all other features are installed in every combination."""
    always = _granted(rbac.access("ns"))
    wanted = _permissions(role.rules())
    probes = _permissions(role.probes)
    assert probes <= wanted
    others = [_granted(rbac.optional_access(each, "ns")) for each in OPTIONAL_ROLES if each != role]
    for count in range(len(others) + 1):
        for installed in combinations(others, count):
            granted = always.union(*installed)
            assert (probes <= granted) is (wanted <= granted)


def _granted(objects: Sequence[Object]) -> set[tuple[str, str, str, str]]:
    """Return the permissions of the operator's ClusterRole, the first one of ``objects``."""
    role = next(obj for obj in objects if obj["kind"] == "ClusterRole")
    found = set()
    for rule in role["rules"]:
        names = rule.get("resourceNames") or [""]
        found |= set(product(rule["apiGroups"], rule["resources"], rule["verbs"], names))
    return found


def _permissions(rules: Iterable[Rule]) -> set[tuple[str, str, str, str]]:
    """Return the permissions that ``rules`` grant in the whole cluster."""
    found = set()
    for rule in rules:
        names = rule.resource_names or ("",)
        found |= set(product([rule.group], rule.resources, rule.verbs, names))
    return found
