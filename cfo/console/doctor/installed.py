"""Reads with which options ``cfo manifests`` installed an operator, so that remedies can be pasted.

No request changes anything. What the user is not allowed to read is named, because its options are then unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any, Final

import msgspec

from cfo.config.model import OperatorConfiguration
from cfo.console.doctor.facts import Installation, certificate_secret, image_of
from cfo.console.operator_namespaces import bound_namespaces
from cfo.features import OPTIONAL_ROLES
from cfo.manifests import host_policy
from cfo.manifests.additional import own_name
from cfo.manifests.names import DEPLOYMENT, LABELS, MANAGER_BINDING, MANAGER_ROLE, default_image
from cfo.manifests.overlays import CERTIFICATE
from cfo.manifests.rbac import optional_binding
from cfo.manifests.watched import watched_name
from cfo.operator import METRICS_SERVICE
from cfo.runtime import (
    GVK,
    NETWORK_POLICY,
    Client,
    Forbidden,
    NamespacedName,
    Object,
    UnknownKind,
    gvk_of,
    key_of,
    labels_of,
    name_of,
)
from cfo.runtime.objects import CLUSTER_ROLE, CLUSTER_ROLE_BINDING

SERVICE_MONITOR: Final = GVK("monitoring.coreos.com", "v1", "ServiceMonitor")


class InstalledOptions(msgspec.Struct):
    """The options of an installation; ``unread`` are the components of which they are unknown.

    ``is_bound``: whether a ClusterRoleBinding is for the operator in its namespace. Otherwise, any user of that
    namespace can have created what was found there, so nothing else is read.
    """

    is_bound: bool = False
    image: str = ""
    components: set[str] = msgspec.field(default_factory=set)
    api_servers: list[str] = msgspec.field(default_factory=list)
    is_additional: bool = False
    part: list[str] = msgspec.field(default_factory=list)
    """The options that select the objects of an additional operator, and the namespaces of any."""
    unread: list[str] = msgspec.field(default_factory=list)

    def words(self, namespace: str, needed: Collection[str]) -> str:
        """Return the options as in a shell, with the components that are ``needed`` as well."""
        words = ["--namespace", namespace]
        if self.is_additional:
            words.append("--additional")
        words += self.part
        if self.image not in ("", default_image()):
            words += ["--image", self.image]
        for name in sorted(self.components.union(needed)):
            words += ["--with", name]
        for cidr in self.api_servers:
            words += ["--api-server-cidr", cidr]
        return shlex.join(words)


async def read_options(client: Client, installation: Installation) -> InstalledOptions:
    """Read the options from the Deployment and from the objects of the components."""
    namespace = installation.namespace
    options = InstalledOptions()
    await _read_roles(client, installation, options)
    if not options.is_bound:
        return options
    if installation.deployment is not None:
        options.image = image_of(installation.deployment["spec"]["template"])
        if certificate_secret(installation) == CERTIFICATE:
            options.components.add("certmanager")
    policy_key = NamespacedName(namespace, DEPLOYMENT)
    policy = await _read(client, options, "network-policy", NETWORK_POLICY, policy_key)
    if policy is not None:
        options.components.add("network-policy")
        options.api_servers = _cidrs(policy)
    monitor = NamespacedName(namespace, METRICS_SERVICE)
    if await _read(client, options, "prometheus", SERVICE_MONITOR, monitor) is not None:
        options.components.add("prometheus")
    hosts = host_policy.policy()[0]
    read_hosts = not options.is_additional and await _read(
        client, options, "reserved-hosts", gvk_of(hosts), key_of(hosts)
    )
    if read_hosts:
        options.components.add("reserved-hosts")
    return options


async def _read_roles(
    client: Client, installation: Installation, options: InstalledOptions
) -> None:
    """Read the bindings of the roles that this installation has."""
    namespace = installation.namespace
    label, value = next(iter(LABELS.items()))
    try:
        bindings = await client.list(CLUSTER_ROLE_BINDING, live=True)
    except Forbidden:
        options.unread.append("the components with roles")
        return
    options.is_bound = namespace in bound_namespaces(bindings)
    own: set[str] = set()
    for binding in bindings:
        is_for_namespace = any(
            each.get("namespace") == namespace for each in binding.get("subjects") or ()
        )
        if is_for_namespace and labels_of(binding).get(label) == value:
            own.add(name_of(binding))
    for role in OPTIONAL_ROLES:
        name = optional_binding(role)
        if name in own or own_name(name, namespace) in own:
            options.components.add(role.name)
    part = installation.part
    if part is None and own_name(MANAGER_BINDING.name, namespace) in own:
        part = installation.configuration
    if part is not None:
        options.is_additional = True
        options.part = _part(part)
    elif await has_divided_roles(client, is_bound=MANAGER_BINDING.name in own):
        options.part = watch_options(installation.configuration)


async def has_divided_roles(client: Client, *, is_bound: bool) -> bool:
    """Return whether the first operator has permissions only in its namespaces, as far as it has any.

    ``is_bound``: whether the ClusterRoleBinding of the manifests is for it. Without it, an administrator has bound the
    roles in namespaces.
    """
    role = NamespacedName("", watched_name(MANAGER_ROLE))
    return not is_bound or await client.get(CLUSTER_ROLE, role, live=True) is not None


def watch_options(configuration: OperatorConfiguration) -> list[str]:
    """Return the options for the namespaces that the operator reconciles."""
    words: list[str] = []
    for namespace in configuration.watch_namespaces:
        words += ["--watch-namespace", namespace]
    return words


def _part(configuration: OperatorConfiguration) -> list[str]:
    """Return the options that select the objects of an additional operator."""
    words = watch_options(configuration)
    if configuration.label_selector:
        words += ["--label-selector", configuration.label_selector]
    return words or ["--watch-namespace", "NAMESPACE"]


async def _read(
    client: Client, options: InstalledOptions, component: str, gvk: GVK, key: NamespacedName
) -> Object | None:
    """Return the object that shows that ``component`` is installed; ``None`` if there is none, or if it is unread."""
    try:
        return await client.get(gvk, key, live=True)
    except UnknownKind:
        return None
    except Forbidden:
        options.unread.append(component)
        return None


def _cidrs(policy: Object) -> list[str]:
    """Return the addresses from which the webhooks can be called, if the NetworkPolicy limits them."""
    rules: list[dict[str, Any]] = policy["spec"].get("ingress") or [{}]
    found: list[str] = []
    for source in rules[0].get("from") or ():
        block = source.get("ipBlock") or {}
        if block.get("cidr"):
            found.append(str(block["cidr"]))
    return found
