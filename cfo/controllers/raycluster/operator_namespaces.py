"""From which namespaces the KubeRay operator comes: whose word counts, and what happens when it is taken back.

The head's network policy lets the KubeRay operator in, by namespace. Who could say what that namespace is could open
or close every head, so only those are heard whom tenants cannot imitate: the configuration; else Open Data
Hub's ``default-dsci``; else the ServiceAccounts that ClusterRoleBindings give a role with the right to update
``rayclusters/status``; else the well-known names. A pod's labels decide nothing. While ClusterRoles may not be read
(the Go operator's own role does not let us), a role is taken by its name for what it grants: cluster-wide bindings are
made by administrators alone.

Where two of them speak, the first does. When all fall silent the last value stays, for as long as this process runs:
the pods are more likely still where they were than somewhere else.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cfo.api.raycluster.kinds import DSC_INITIALIZATION
from cfo.api.raycluster.naming import CLUSTER_LABEL
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.platform import OptionalKind, Platform
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.kinds import CLUSTER_ROLE
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.reconcile import READ, Rule

__all__ = [
    "WELL_KNOWN_OPENSHIFT",
    "WELL_KNOWN_VANILLA",
    "OperatorNamespaces",
    "may_update_status",
    "service_account_of",
]

WELL_KNOWN_OPENSHIFT = ("opendatahub", "redhat-ods-applications")
WELL_KNOWN_VANILLA = ("ray-system",)

_DEFAULT_DSCI = NamespacedName("", "default-dsci")
_OWN_ACCOUNT_NAME = "codeflare-operator-controller-manager"
_OWN_ROLE_NAME = "codeflare-operator-manager-role"
_ROLE_INDEX = "updates-raycluster-status"
_BINDING_INDEX = "cluster-role"
_NAMED_INDEX = "named-kuberay"
_KUBERAY_ROLE = "kuberay-operator"
"""Part of the name of KubeRay's ClusterRole, however it was installed: kustomize, Helm, OLM."""


class _RoleRef(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Binding(msgspec.Struct):
    roleRef: _RoleRef | None = None  # noqa: N815 (the API's spelling)


class _Claims(msgspec.Struct):
    sub: str = ""


_binding = msgspec.json.Decoder(_Binding)
_claims = msgspec.json.Decoder(_Claims)


def may_update_status(role: Mapping[str, Any]) -> bool:
    """Whether a ClusterRole is one for those who reconcile RayClusters: it may update ``rayclusters/status``.

    Group and resource must not both be wildcards: the garbage collector and administrators may do everything, and
    are not KubeRay.
    """
    return any(_grants(rule) for rule in role.get("rules") or ())


def _grants(rule: Mapping[str, Any]) -> bool:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    verbs = rule.get("verbs") or ()
    if rule.get("resourceNames") or not ("update" in verbs or "*" in verbs):
        return False
    named_group, named_resource = "ray.io" in groups, "rayclusters/status" in resources
    return (named_group and (named_resource or "*" in resources or "*/status" in resources)) or (
        named_resource and "*" in groups
    )


def _index_role(entry: Entry) -> Iterable[str]:
    if b"ray" in entry.raw and may_update_status(entry.object()):
        yield "yes"


def _index_binding(entry: Entry) -> Iterable[str]:
    reference = _binding.decode(entry.raw).roleRef
    if reference is not None and reference.kind == CLUSTER_ROLE.kind:
        yield reference.name


def _index_named(entry: Entry) -> Iterable[str]:
    if any(_KUBERAY_ROLE in name for name in _index_binding(entry)):
        yield "yes"


def service_account_of(authorization: str) -> NamespacedName | None:
    """The ServiceAccount whose token an ``Authorization`` header carries; ``None`` where it is another credential.

    A token says itself whose it is (the claim ``sub`` of a JSON Web Token), so nobody has to be asked.
    """
    _, _, token = authorization.partition(" ")
    try:
        _, payload, _ = token.split(".")
        claims = _claims.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, msgspec.DecodeError):
        return None
    prefix, _, account = claims.sub.partition("system:serviceaccount:")
    namespace, _, name = account.partition(":")
    return NamespacedName(namespace, name) if not prefix and namespace and name else None


class OperatorNamespaces:
    """Knows the namespaces, and when they have changed.

    ``roles`` and ``bindings`` are informers of all ClusterRoles and ClusterRoleBindings (``None``: these are not to be
    looked at), which need not have synced where they are forbidden; ``dsci`` is that of DSCInitializations.
    ``own_account`` is the ServiceAccount that this operator runs as, which is left out, and so are the usual names of
    its account and role.
    """

    rules = (
        Rule("rbac.authorization.k8s.io", ("clusterroles", "clusterrolebindings"), READ),
        Rule(DSC_INITIALIZATION.group, "dscinitializations", READ),
    )

    def __init__(
        self,
        config: KubeRayConfiguration,
        platform: Platform,
        *,
        roles: Informer | None,
        bindings: Informer | None,
        dsci: OptionalKind,
        own_account: NamespacedName | None = None,
    ) -> None:
        self._config = config
        self._platform = platform
        self._roles = roles.add_index(_ROLE_INDEX, _index_role) if roles is not None else None
        self._bindings: Reader | None = None
        if bindings is not None:
            bindings.add_index(_BINDING_INDEX, _index_binding).add_index(_NAMED_INDEX, _index_named)
            self._bindings = bindings.reader
        self._dsci = dsci
        self._last: tuple[str, ...] = ()
        self._own_account = own_account

    async def current(self) -> tuple[str, ...]:
        """The namespaces, at least one; raises ``DiscoveryIncomplete`` while the platform is unknown."""
        if self._config.operator_namespaces:
            return tuple(self._config.operator_namespaces)
        self._follow()
        if self._last:
            return self._last
        return WELL_KNOWN_OPENSHIFT if await self._platform.is_openshift() else WELL_KNOWN_VANILLA

    def changed_by(self, entry: Entry) -> bool:
        """Whether what somebody said last moved the namespaces; ``entry`` is what he said it by."""
        if self._config.operator_namespaces or CLUSTER_LABEL in entry.meta.labels:
            return False  # the bindings that we make ourselves are many, and are not for KubeRay
        return self._follow()

    def _follow(self) -> bool:
        said = self._from_dsci() or self._from_bindings()
        if not said or said == self._last:
            return False
        self._last = said
        return True

    def _from_dsci(self) -> tuple[str, ...]:
        informer = self._dsci.informer
        dsci = informer.reader.get(_DEFAULT_DSCI) if informer is not None else None
        namespace = ((dsci or {}).get("spec") or {}).get("applicationsNamespace")
        return (str(namespace),) if namespace else ()

    def _from_bindings(self) -> tuple[str, ...]:
        found: set[str] = set()
        for binding in self._bindings_of_kuberay():
            for subject in binding.get("subjects") or ():
                account = NamespacedName(subject.get("namespace") or "", subject.get("name") or "")
                own = account == self._own_account or account.name == _OWN_ACCOUNT_NAME
                if subject.get("kind") == "ServiceAccount" and account.namespace and not own:
                    found.add(account.namespace)
        return tuple(sorted(found))

    def _bindings_of_kuberay(self) -> Iterator[Object]:
        if self._roles is None or self._bindings is None:
            return
        if self._roles.is_forbidden and not self._roles.has_synced:
            yield from self._bindings.list(index=(_NAMED_INDEX, "yes"))
            return
        for role in self._roles.reader.keys(_ROLE_INDEX, "yes"):
            if role.name != _OWN_ROLE_NAME:
                yield from self._bindings.list(index=(_BINDING_INDEX, role.name))
