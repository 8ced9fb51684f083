"""Checks the optional roles that an operator outside the cluster needs.

Its user is unknown, so this asks about the ServiceAccount, to which the manifests bind the roles. The command that
installs missing ones contains only these: the other manifests would scale the Deployment up, or give the webhooks to
its Service.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from cfo.checks.findings import PIPED, Finding, not_needed, skip
from cfo.console.doctor.facts import Installation
from cfo.console.doctor.installed import has_divided_roles, watch_options
from cfo.features.contract import OptionalRole
from cfo.features.roles import enabled_roles, is_installed, retained_roles
from cfo.manifests.additional import own_name
from cfo.manifests.names import MANAGER_BINDING, SERVICE_ACCOUNT
from cfo.manifests.rbac import optional_binding
from cfo.runtime import Client, NamespacedName
from cfo.runtime.client import service_account
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

_OUTSIDE: Final = "the operator runs outside the cluster as another user"


async def check_outside_roles(client: Client, installation: Installation) -> list[Finding]:
    """Return which components' roles are not installed, although the configuration or existing objects need them.

    Requires the permission to create SubjectAccessReviews.
    """
    enabled = await enabled_roles(client, installation.configuration)
    retained = await retained_roles(client, enabled, installation.configuration)
    user = service_account(installation.namespace, SERVICE_ACCOUNT)
    needed = [*enabled, *retained]
    missing: list[OptionalRole] = []
    for role in needed:
        is_present = await is_installed(
            client, role, installation.configuration, installation.namespace, user
        )
        if not is_present:
            missing.append(role)
    if not missing:
        return [not_needed(_OUTSIDE)]
    is_additional = await _is_additional(client, installation, missing)
    options = await _options(client, installation, is_additional=is_additional)
    names = ", ".join(role.name for role in missing)
    noun = "component" if len(missing) == 1 else "components"
    return [
        skip(
            f"{_OUTSIDE}; the ServiceAccount {SERVICE_ACCOUNT} lacks the roles of the {noun} {names}",
            f"unless the user has these permissions: {_command(options, missing)}; this "
            "binds the roles to the ServiceAccount, so bind them to another user yourself",
        )
    ]


async def _options(client: Client, installation: Installation, *, is_additional: bool) -> list[str]:
    """Return the options of all roles of the operator."""
    words = ["--namespace", installation.namespace]
    if is_additional:
        words.append("--additional")
    is_divided = is_additional or await _has_divided_roles(client, installation.namespace)
    if is_divided:
        # The Deployment names the namespaces also if the ConfigMap has lost them.
        words += watch_options(installation.part or installation.configuration)
    return words


async def _has_divided_roles(client: Client, namespace: str) -> bool:
    binding = await client.get(CLUSTER_ROLE_BINDING, MANAGER_BINDING, live=True)
    subjects = (binding or {}).get("subjects") or ()
    is_bound = any(subject.get("namespace") == namespace for subject in subjects)
    return await has_divided_roles(client, is_bound=is_bound)


def _command(options: Iterable[str], roles: Iterable[OptionalRole]) -> str:
    words = ["cfo", "manifests", "--roles-only", *options]
    for role in roles:
        words += ["--with", role.name]
    return f"{shlex.join(words)} {PIPED}"


async def _is_additional(
    client: Client, installation: Installation, roles: Sequence[OptionalRole]
) -> bool:
    """Return whether the roles need names of their own, because an operator in another namespace has the usual ones."""
    namespace = installation.namespace
    own = NamespacedName("", own_name(MANAGER_BINDING.name, namespace))
    if installation.part is not None:
        return True
    if await client.get(CLUSTER_ROLE_BINDING, own, live=True) is not None:
        return True
    for name in [MANAGER_BINDING.name, *map(optional_binding, roles)]:
        binding = await client.get(CLUSTER_ROLE_BINDING, NamespacedName("", name), live=True)
        subjects = (binding or {}).get("subjects") or ()
        if subjects and all(subject.get("namespace") != namespace for subject in subjects):
            return True
    return False
