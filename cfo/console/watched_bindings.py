"""Finds the RoleBindings with which operators have permissions only in the namespaces that they watch."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from cfo.manifests.names import LABELS, SERVICE_ACCOUNT
from cfo.manifests.watched import WATCHED_PREFIX
from cfo.runtime import GVK, Client, NamespacedName, Object, key_of

ROLE_BINDING: Final = GVK("rbac.authorization.k8s.io", "v1", "RoleBinding")
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in LABELS.items())
"""Selects the objects of the manifests."""


async def watched_bindings(client: Client, namespaces: Set[str]) -> list[NamespacedName]:
    """Return the RoleBindings in watched namespaces that bind only operators in ``namespaces``."""

    def key_if_own(binding: Object) -> NamespacedName | None:
        subjects = binding.get("subjects") or ()
        accounts = {(subject.get("name"), subject.get("namespace")) for subject in subjects}
        own = {(SERVICE_ACCOUNT, namespace) for namespace in namespaces}
        is_watched = str(binding["roleRef"]["name"]).startswith(WATCHED_PREFIX)
        return key_of(binding) if is_watched and accounts and accounts <= own else None

    return await client.select(ROLE_BINDING, key_if_own, label_selector=SELECTOR)
