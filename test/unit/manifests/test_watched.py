"""An operator with ``watchNamespaces`` has most of its permissions only in these namespaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cfo import operator
from cfo.cli import cli
from cfo.features import OPTIONAL_ROLES
from cfo.features.scopes import CLUSTER_SCOPED, single_permissions
from cfo.manifests.names import DEFAULT_NAMESPACE, DEPLOYMENT, SERVICE_ACCOUNT
from cfo.runtime import Object, Rule, name_of, namespace_of
from test.support.manifests import load_all

COMPONENTS = [role.name for role in OPTIONAL_ROLES]
WITH_ALL_ROLES = [f"--with={name}" for name in COMPONENTS]
WATCHED = ("--watch-namespace", "a", "--watch-namespace", "b")
ADDITIONAL = ("--additional", "--namespace", "ops", *WATCHED)
READ_EVERYWHERE = {
    ("gateway.networking.k8s.io", "httproutes"),
    ("gateway.networking.k8s.io", "tlsroutes"),
    ("networking.k8s.io", "ingresses"),
}
"""The kinds with a namespace that are listed and watched in the whole cluster, because their hosts are."""

Permission = tuple[str, str, str, str]


def print_manifests(*arguments: str) -> list[Object]:
    result = CliRunner().invoke(cli, ["manifests", *arguments])
    assert result.exit_code == 0, result.output
    return load_all(result.stdout)


def permissions_of(role: Object) -> Iterator[Permission]:
    """Yield group, resource, verb and name of each permission; the name can be empty."""
    for policy in role["rules"]:
        (group,) = policy["apiGroups"]
        for resource in policy["resources"]:
            for verb in policy["verbs"]:
                for name in policy.get("resourceNames", [""]):
                    yield group, resource, verb, name


def granted(objects: Sequence[Object]) -> dict[str, set[Permission]]:
    """Return the permissions of the operator by namespace; empty for the whole cluster."""
    roles = {
        (obj["kind"], namespace_of(obj), name_of(obj)): obj for obj in objects if "rules" in obj
    }
    found: dict[str, set[Permission]] = {}
    for binding in objects:
        if "roleRef" not in binding:
            continue
        assert [subject["name"] for subject in binding["subjects"]] == [SERVICE_ACCOUNT]
        reference = binding["roleRef"]
        where = namespace_of(binding)
        role_namespace = where if reference["kind"] == "Role" else ""
        role = roles[reference["kind"], role_namespace, reference["name"]]
        found.setdefault(where, set()).update(permissions_of(role))
    return found


def needed(*, serves_webhooks: bool) -> set[Permission]:
    """Return the permissions of an operator for all namespaces with all components."""
    rules: list[Rule] = [*operator.rules("ops", serves_webhooks=serves_webhooks)]
    for role in OPTIONAL_ROLES:
        rules += role.rules()
    found: set[Permission] = set()
    for rule in single_permissions(rules):
        name = rule.resource_names[0] if rule.resource_names else ""
        found.add((rule.group, rule.resources[0], rule.verbs[0], name))
    return found


@pytest.mark.parametrize("is_additional", [True, False])
def test_only_what_needs_the_whole_cluster_is_granted_there(is_additional: bool) -> None:
    options = ADDITIONAL if is_additional else ("--namespace", "ops", *WATCHED)
    found = granted(print_manifests(*options, *WITH_ALL_ROLES))
    assert found.keys() == {"", "ops", "a", "b"}
    for group, resource, verb, name in found[""]:
        kind = (group, resource.partition("/")[0])
        is_host = kind in READ_EVERYWHERE and verb in ("list", "watch")
        is_lease = (kind[1], verb, name) == ("leases", "get", "codeflare-operator-lock")
        assert kind in CLUSTER_SCOPED or is_host or is_lease, (group, resource, verb)
    assert not found[""] & found["a"], "nothing is granted twice"
    assert found["a"] == found["b"]
    assert ("", "secrets", "list", "") in found["a"]
    assert ("", "pods", "create", "") in found["a"]


def test_no_permission_is_lost() -> None:
    found = granted(print_manifests("--namespace", "ops", *WATCHED, *WITH_ALL_ROLES))
    unused = {
        (group, resource, verb, "")
        for group, resource in (
            ("networking.k8s.io", "ingressclasses"),
            ("rbac.authorization.k8s.io", "clusterroles"),
        )
        for verb in ("get", "list", "watch")
    }
    assert found[""] | found["a"] | found["ops"] == needed(serves_webhooks=True) - unused


def test_own_namespace_has_the_operators_objects_and_their_events() -> None:
    found = granted(print_manifests(*ADDITIONAL, *WITH_ALL_ROLES))
    kinds = {(group, resource) for group, resource, _, _ in found["ops"]}
    assert kinds == {
        ("", "configmaps"),
        ("coordination.k8s.io", "leases"),
        ("events.k8s.io", "events"),
    }


def test_roles_of_the_namespaces_have_no_cluster_role_binding() -> None:
    objects = print_manifests(*ADDITIONAL, *WITH_ALL_ROLES)
    bindings = [obj for obj in objects if obj.get("roleRef", {}).get("kind") == "ClusterRole"]
    bound = {"RoleBinding": set[str](), "ClusterRoleBinding": set[str]()}
    for binding in bindings:
        bound[binding["kind"]].add(binding["roleRef"]["name"])
    assert not bound["RoleBinding"] & bound["ClusterRoleBinding"]
    assert all(name.endswith("-ops") for name in bound["RoleBinding"])
    # Roles without rules remain, so that the manifests take permissions away when they are applied.
    by_name = {name_of(obj): obj for obj in objects if obj["kind"] == "ClusterRole"}
    assert by_name["codeflare-operator-manager-gateway-role-ops"]["rules"] == []


@pytest.mark.parametrize("options", [ADDITIONAL, ("--namespace", "ops", *WATCHED)])
def test_roles_only_are_those_of_the_installation(options: tuple[str, ...]) -> None:
    components = ("--with", "appwrapper", "--with", "csr", "--with", "gateway")
    found = print_manifests("--roles-only", *options, *components)
    installation = print_manifests(*options, *components)
    assert all(obj in installation for obj in found)
    kinds = Counter(obj["kind"] for obj in found)
    roles_of_requesters = 1
    assert kinds == {
        "ClusterRole": 3 + 3 + roles_of_requesters,
        "RoleBinding": 3 * 2,
        "ClusterRoleBinding": 3,
    }


def test_operator_in_a_watched_namespace_reports_its_events_there() -> None:
    found = granted(print_manifests("--namespace", "a", *WATCHED))
    assert ("events.k8s.io", "events", "create", "") in found["a"] & found["b"]
    assert found.keys() == {"", "a", "b"}


def test_namespace_given_twice_is_bound_once() -> None:
    twice = print_manifests("--watch-namespace", "a", "--watch-namespace", "a")
    assert twice == print_manifests("--watch-namespace", "a")


@pytest.mark.parametrize("components", [(), ("--with", "certmanager")])
def test_first_operator_creates_its_configuration_with_the_namespaces(
    components: tuple[str, ...],
) -> None:
    result = CliRunner().invoke(cli, ["manifests", *WATCHED, *components])
    assert result.exit_code == 0, result.output
    assert (
        f"the permissions are only for a, b, which must exist: if the ConfigMap {DEFAULT_NAMESPACE}/codeflare-operator-"
        "config exists, its watchNamespaces must name no others\n"
    ) in result.stderr
    objects: list[dict[str, Any]] = load_all(result.stdout)
    (deployment,) = [
        obj for obj in objects if name_of(obj) == DEPLOYMENT and "replicas" in obj["spec"]
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    argument = container["args"][-1]
    assert len(container["args"]) == 1 + len(components) // 2
    document = yaml.safe_load(argument.removeprefix("--default-config="))
    assert document == {"watchNamespaces": ["a", "b"]}
    assert any(obj["kind"] == "MutatingWebhookConfiguration" for obj in objects)
