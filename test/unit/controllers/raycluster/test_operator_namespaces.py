"""Tests of how KubeRay operators are recognized by their roles, and this operator by its token."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any
from unittest.mock import Mock

import pytest

from cfo.api.raycluster.names import CLUSTER_LABEL, DSC_INITIALIZATION
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.operator_namespaces import (
    WELL_KNOWN_OPENSHIFT,
    WELL_KNOWN_VANILLA,
    OperatorNamespaces,
    grants_status_update,
    service_account_of,
)
from cfo.runtime.cache.entry import Entry
from cfo.runtime.objects.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from cfo.runtime.objects.unstructured import NamespacedName, Object, new_object
from test.support.decisions import list_objects, offline_manager, serve


@pytest.mark.parametrize(
    ("rule", "granted"),
    [
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["update"]}, True),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters", "rayclusters/status"],
                "verbs": ["*"],
            },
            True,
        ),
        ({"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["update"]}, True),
        ({"apiGroups": ["ray.io"], "resources": ["*/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["*"], "resources": ["rayclusters/status"], "verbs": ["update"]}, True),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, False),
        ({"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["update"]}, False),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters/status"],
                "verbs": ["get", "patch"],
            },
            False,
        ),
        ({"apiGroups": ["other"], "resources": ["rayclusters/status"], "verbs": ["update"]}, False),
        (
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters/status"],
                "verbs": ["update"],
                "resourceNames": ["one"],
            },
            False,
        ),
        ({"nonResourceURLs": ["*"], "verbs": ["*"]}, False),
    ],
)
def test_role_that_updates_raycluster_status_is_of_kuberay_operator(
    rule: dict[str, Any], granted: bool
) -> None:
    assert grants_status_update({"rules": [{"verbs": ["get"]}, rule]}) is granted


def test_role_without_rules_grants_nothing() -> None:
    assert not grants_status_update({"rules": None})


def authorization_header(payload: bytes) -> str:
    """Return an Authorization header with a JWT of this payload."""
    return f"Bearer e30.{urlsafe_b64encode(payload).decode().rstrip('=')}.c2ln"


def test_service_account_is_read_from_token() -> None:
    account = service_account_of(
        authorization_header(b'{"sub":"system:serviceaccount:ns:me","aud":["x"]}')
    )
    assert account == NamespacedName("ns", "me")
    for authorization in (
        "",
        "Bearer opaque",
        "Bearer a.b.c",
        "Basic dTpw",
        authorization_header(b'{"sub":"alice"}'),
        authorization_header(b'{"sub":"not-system:serviceaccount:ns:me"}'),
        authorization_header(b'{"sub":"system:serviceaccount:ns"}'),
        authorization_header(b'{"sub":7}'),
        authorization_header(b"[]"),
        authorization_header(b"\xff"),
    ):
        assert service_account_of(authorization) is None


UPDATES_STATUS = {"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["update"]}


def role(name: str, *rules: Object) -> Object:
    return new_object(CLUSTER_ROLE, name, rules=list(rules))


def binding(role_name: str, *accounts: str, kind: str = "ClusterRole", **labels: str) -> Object:
    """Return a binding of a role to ServiceAccounts, each ``NAMESPACE/NAME``."""
    subjects = []
    for account in accounts:
        namespace, _, name = account.partition("/")
        subjects.append({"kind": "ServiceAccount", "namespace": namespace, "name": name})
    reference = {"kind": kind, "name": role_name}
    return new_object(
        CLUSTER_ROLE_BINDING,
        f"{role_name}-binding",
        labels=labels,
        roleRef=reference,
        subjects=subjects,
    )


class World:
    """The sources of the namespaces, as they are listed."""

    def __init__(self, *, is_openshift: bool = False, **settings: Any) -> None:
        self.manager = offline_manager()
        config = KubeRayConfiguration(**settings)
        self.environment = ClusterEnvironment.detect(self.manager, config)
        self.environment.platform._openshift = is_openshift
        own_account = NamespacedName("own", "operator")
        self.namespaces = OperatorNamespaces(
            config, self.environment, self.manager.cache, own_account=own_account
        )
        self.roles, self.bindings = self.namespaces.informers()

    def list(self, roles: list[Object], bindings: list[Object]) -> None:
        """List these ClusterRoles and ClusterRoleBindings."""
        list_objects(self.roles, roles)
        list_objects(self.bindings, bindings)

    def entry(self, name: str) -> Entry:
        """Return a listed binding."""
        found = self.bindings.reader.entry(NamespacedName("", name))
        assert found is not None
        return found


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ([binding("kr", "ray/kuberay")], ("ray",)),
        ([binding("kr", "b/kuberay", "a/kuberay")], ("a", "b")),
        ([binding("kr", "ray/kuberay", "own/operator")], ("ray",)),
        (
            [binding("kr", "ray/kuberay", "other/codeflare-operator-controller-manager")],
            ("ray",),
        ),
        ([binding("kr", "own/operator")], WELL_KNOWN_VANILLA),
        ([binding("kr", "ray/kuberay", kind="Role")], WELL_KNOWN_VANILLA),
        ([binding("reader", "ray/kuberay")], WELL_KNOWN_VANILLA),
        ([binding("codeflare-operator-manager-role", "ray/kuberay")], WELL_KNOWN_VANILLA),
        ([binding("kr", "/kuberay")], WELL_KNOWN_VANILLA),
        ([], WELL_KNOWN_VANILLA),
    ],
    ids=[
        "its ServiceAccount",
        "several ServiceAccounts, sorted",
        "not this operator",
        "not another installation of this operator",
        "only this operator",
        "a Role of the same name",
        "a role that cannot update the status",
        "the role of this operator",
        "an account without namespace",
        "no bindings",
    ],
)
async def test_kuberay_runs_where_the_accounts_that_update_the_status_are(
    bindings: list[Object], expected: tuple[str, ...]
) -> None:
    world = World()
    roles = [
        role("kr", UPDATES_STATUS),
        role("codeflare-operator-manager-role", UPDATES_STATUS),
        role("reader", {**UPDATES_STATUS, "verbs": ["get"]}),
    ]
    world.list(roles, bindings)
    assert await world.namespaces.current() == expected


async def test_configured_namespaces_are_used_whatever_else_is_known() -> None:
    world = World(operator_namespaces=["mine"])
    world.list([role("kr", UPDATES_STATUS)], [binding("kr", "ray/kuberay")])
    assert await world.namespaces.current() == ("mine",)
    assert not world.namespaces.update(world.entry("kr-binding"))


async def test_setting_of_open_data_hub_precedes_the_bindings() -> None:
    world = World()
    world.list([role("kr", UPDATES_STATUS)], [binding("kr", "ray/kuberay")])
    dsci = new_object(
        DSC_INITIALIZATION, "default-dsci", spec={"applicationsNamespace": "applications"}
    )
    serve(world.environment.dsc_initializations, DSC_INITIALIZATION, world.manager, [dsci])
    assert await world.namespaces.current() == ("applications",)


@pytest.mark.parametrize(
    ("is_openshift", "expected"), [(True, WELL_KNOWN_OPENSHIFT), (False, WELL_KNOWN_VANILLA)]
)
async def test_without_sources_the_namespaces_are_the_usual_ones_of_the_platform(
    is_openshift: bool, expected: tuple[str, ...]
) -> None:
    world = World(is_openshift=is_openshift)
    world.list([], [])
    assert await world.namespaces.current() == expected


async def test_last_value_is_kept_when_its_source_is_deleted() -> None:
    world = World()
    world.list([role("kr", UPDATES_STATUS)], [binding("kr", "ray/kuberay")])
    assert await world.namespaces.current() == ("ray",)
    world.list([], [])
    assert await world.namespaces.current() == ("ray",)


def test_change_of_a_source_is_reported_once_and_own_bindings_are_not_read() -> None:
    world = World()
    own = binding("own", "ray/kuberay", **{CLUSTER_LABEL: "rc"})
    world.list([role("kr", UPDATES_STATUS)], [binding("kr", "ray/kuberay"), own])
    assert not world.namespaces.update(world.entry("own-binding"))
    assert world.namespaces.update(world.entry("kr-binding"))
    assert not world.namespaces.update(world.entry("kr-binding"))


async def test_role_of_kuberay_is_recognized_by_name_if_roles_cannot_be_read() -> None:
    world = World()
    list_objects(
        world.bindings, [binding("kuberay-operator-x", "ray/kuberay"), binding("y", "b/c")]
    )
    world.roles._reflectors = [Mock(forbidden=True)]
    assert await world.namespaces.current() == ("ray",)
