"""Determines the namespaces of the KubeRay operator.

The network policy of a head admits the KubeRay operator by namespace. A client that can change these namespaces can
open or close every head, so only sources that tenants cannot forge are used. In order of precedence:

1. the configuration;
2. Open Data Hub's ``default-dsci``;
3. the ServiceAccounts that ClusterRoleBindings allow to update ``rayclusters/status``;
4. the well-known namespaces.

The labels of pods are never used. If the operator is not allowed to read ClusterRoles (the Go operator's own role
does not allow it), a role is recognized by its name: only administrators create cluster-wide bindings.

The first source with a value wins. If sources 2 and 3 no longer yield any, the last value is kept for as long as this
process runs, because the operator is most likely still running there.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cfo.api.raycluster.names import CLUSTER_LABEL, DSC_INITIALIZATION
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.runtime import READ, Cache, Entry, Informer, NamespacedName, Object, Rule
from cfo.runtime.objects import CLUSTER_ROLE, CLUSTER_ROLE_BINDING

WELL_KNOWN_OPENSHIFT = ("opendatahub", "redhat-ods-applications")
WELL_KNOWN_VANILLA = ("ray-system",)

_ACCOUNT_PREFIX = "system:serviceaccount:"
_DEFAULT_DSCI = NamespacedName("", "default-dsci")
_OWN_ACCOUNT_NAME = "codeflare-operator-controller-manager"
_OWN_ROLE_NAME = "codeflare-operator-manager-role"
_ROLE_INDEX = "updates-raycluster-status"
_BINDING_INDEX = "cluster-role"
_NAMED_INDEX = "named-kuberay"
_KUBERAY_ROLE = "kuberay-operator"
"""Part of the name of KubeRay's ClusterRole, whether installed by kustomize, Helm or OLM."""


class _RoleRef(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Claims(msgspec.Struct):
    sub: str = ""


_role_of = field_reader("roleRef", kind=_RoleRef, default=_RoleRef())
_claims_decoder = msgspec.json.Decoder(_Claims)


def grants_status_update(role: Mapping[str, Any]) -> bool:
    """Return whether a ClusterRole is one for operators of RayClusters: it grants updates of ``rayclusters/status``.

    A rule with wildcards for both group and resource does not count: the garbage collector and administrators have
    all permissions, and are not KubeRay.
    """
    return any(_grants_status_update(rule) for rule in role.get("rules") or ())


def _grants_status_update(rule: Mapping[str, Any]) -> bool:
    verbs = rule.get("verbs") or ()
    if rule.get("resourceNames") or not ("update" in verbs or "*" in verbs):
        return False
    groups = rule.get("apiGroups") or ()
    resources = rule.get("resources") or ()
    if "rayclusters/status" in resources:
        return "ray.io" in groups or "*" in groups
    return "ray.io" in groups and ("*" in resources or "*/status" in resources)


def _index_role(role: Entry) -> Iterable[str]:
    if b"ray" in role.raw and grants_status_update(role.object()):
        yield "yes"


def _index_binding(binding: Entry) -> Iterable[str]:
    reference = _role_of(binding)
    if reference.kind == CLUSTER_ROLE.kind:
        yield reference.name


def _index_named(binding: Entry) -> Iterable[str]:
    if any(_KUBERAY_ROLE in name for name in _index_binding(binding)):
        yield "yes"


def service_account_of(authorization: str) -> NamespacedName | None:
    """Return the ServiceAccount whose token an ``Authorization`` header contains; ``None`` for other credentials.

    The token itself names the account (claim ``sub`` of the JSON Web Token), so no request is sent.
    """
    _, _, token = authorization.partition(" ")
    try:
        _, payload, _ = token.split(".")
        claims = _claims_decoder.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, msgspec.DecodeError):
        return None
    if not claims.sub.startswith(_ACCOUNT_PREFIX):
        return None
    namespace, _, name = claims.sub.removeprefix(_ACCOUNT_PREFIX).partition(":")
    return NamespacedName(namespace, name) if namespace and name else None


class OperatorNamespaces:
    """The namespaces of the KubeRay operator, kept current from events of their sources.

    ``cache`` is ``None`` if ClusterRoles and ClusterRoleBindings must not be read. ``own_account``, the ServiceAccount
    of this operator, is ignored, and so are the default names of its account and role.
    """

    rules = (
        Rule("rbac.authorization.k8s.io", ("clusterroles", "clusterrolebindings"), READ),
        Rule(DSC_INITIALIZATION.group, "dscinitializations", READ),
    )

    def __init__(
        self,
        config: KubeRayConfiguration,
        environment: ClusterEnvironment,
        cache: Cache | None,
        *,
        own_account: NamespacedName | None = None,
    ) -> None:
        self._configured = tuple(config.operator_namespaces)
        self._platform = environment.platform
        self._dsci = environment.dsc_initializations
        self._roles: Informer | None = None
        self._bindings: Informer | None = None
        if cache is not None:
            self._roles = cache.informer(CLUSTER_ROLE).add_index(_ROLE_INDEX, _index_role)
            self._bindings = cache.informer(CLUSTER_ROLE_BINDING)
            self._bindings.add_index(_BINDING_INDEX, _index_binding)
            self._bindings.add_index(_NAMED_INDEX, _index_named)
        self._own_account = own_account
        self._last: tuple[str, ...] = ()

    def informers(self) -> list[Informer]:
        """Return the informers of ClusterRoles and ClusterRoleBindings; they never sync if listing is forbidden."""
        return [informer for informer in (self._roles, self._bindings) if informer is not None]

    async def current(self) -> tuple[str, ...]:
        """Return the namespaces, at least one.

        Raises :class:`~cfo.runtime.client.discovery.DiscoveryIncomplete` while the platform is unknown.
        """
        if self._configured:
            return self._configured
        self._refresh()
        if self._last:
            return self._last
        return WELL_KNOWN_OPENSHIFT if await self._platform.is_openshift() else WELL_KNOWN_VANILLA

    def update(self, entry: Entry) -> bool:
        """Reread the sources after ``entry``, one of their objects, changed; return whether the namespaces did."""
        if self._configured or CLUSTER_LABEL in entry.meta.labels:
            return False  # skip the operator's own bindings, which are numerous
        return self._refresh()

    def _refresh(self) -> bool:
        found = self._from_dsci() or self._from_bindings()
        if not found or found == self._last:
            return False
        self._last = found
        return True

    def _from_dsci(self) -> tuple[str, ...]:
        informer = self._dsci.informer
        dsci = informer.reader.get(_DEFAULT_DSCI) if informer is not None else None
        namespace = ((dsci or {}).get("spec") or {}).get("applicationsNamespace")
        return (str(namespace),) if namespace else ()

    def _from_bindings(self) -> tuple[str, ...]:
        found: set[str] = set()
        for binding in self._kuberay_bindings():
            for subject in binding.get("subjects") or ():
                account = NamespacedName(subject.get("namespace") or "", subject.get("name") or "")
                is_own = account == self._own_account or account.name == _OWN_ACCOUNT_NAME
                if subject.get("kind") == "ServiceAccount" and account.namespace and not is_own:
                    found.add(account.namespace)
        return tuple(sorted(found))

    def _kuberay_bindings(self) -> Iterator[Object]:
        if self._roles is None or self._bindings is None:
            return
        roles = self._roles
        bindings = self._bindings.reader
        if roles.is_forbidden and not roles.has_synced:
            yield from bindings.list(index=(_NAMED_INDEX, "yes"))
            return
        for role in roles.reader.keys(_ROLE_INDEX, "yes"):
            if role.name != _OWN_ROLE_NAME:
                yield from bindings.list(index=(_BINDING_INDEX, role.name))
