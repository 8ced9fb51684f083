"""What the rest of the operator may ask of a feature: the contract that each module in :mod:`cfo.features` fulfills.

A feature is cheap to import: controllers, webhooks and models are imported inside the functions that need them, so an
operator does not import the controllers of a feature that is disabled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from cfo.runtime import GVK, Object, Rule

METRICS_SERVICE: Final = "codeflare-operator-manager-metrics"
"""The Service for the operator's metrics, which is also the value of their label ``job``."""

if TYPE_CHECKING:
    from cfo.checks.findings import Check
    from cfo.config.model import OperatorConfiguration
    from cfo.runtime import FieldError, Manager
    from cfo.runtime.webhook import AdmissionRequest
    from cfo.summaries.kind_view import KindView


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the setup of a feature gets.

    ``namespace`` is the operator's namespace, ``enabled`` are the features that the configuration enables;
    ``serves_webhooks``: whether this process has a webhook server. ``embedded_validators`` return the errors with which
    an object of their kind would be refused if the user of a request created it in the request's namespace; the feature
    of the kind adds them for features whose objects create such objects.
    """

    manager: Manager
    configuration: OperatorConfiguration
    namespace: str
    serves_webhooks: bool
    enabled: Sequence[Feature] = ()
    embedded_validators: dict[
        GVK, Callable[[Object, AdmissionRequest], Awaitable[list[FieldError]]]
    ] = msgspec.field(default_factory=dict)


class UserRole(NamedTuple):
    """A ClusterRole for users: its name without the prefix, its rules, and the roles into which it is aggregated.

    Roles of several features with one name are one role.
    """

    name: str
    rules: Sequence[Rule]
    into: tuple[str, ...]


class Leftovers(NamedTuple):
    """Objects outside the installation that an uninstall deletes: those with a label, and with ``name`` if given."""

    gvk: GVK
    label: str
    name: str = ""


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of the operator.

    ``name`` is the name of its component in the manifests, ``title`` its name in sentences. ``enabled`` returns whether
    a configuration enables it; with ``platform_kind``, the API server must also serve that kind.

    ``kinds`` are the kinds of its objects; kinds that create objects of other kinds come first. ``views`` returns how
    people see them. ``shared``: operators of several versions share the kinds, each of which selects its own objects,
    so ``labelSelector`` does not apply to them, their CRDs are installed separately where OLM would allow only one
    owner, and an uninstall keeps the objects.
    ``crds`` returns its own CRDs. An uninstall removes ``finalizers`` and deletes ``leftovers``.

    ``base_rules`` returns the permissions that every operator in a namespace has, ``rules`` those of the feature's own
    role, which is installed only with the feature; ``probe`` is a permission that only this role has (``None``: there
    is no such role). ``bound_roles`` are the names and rules of the ClusterRoles that the operator binds to other
    subjects, ``user_roles`` the roles for users. ``field_managers`` are the field managers of its writes.

    ``setup_webhooks`` is called if this process serves webhooks, even if the feature is disabled: the manifests contain
    the webhooks, and objects that are created without them would bypass validation when the feature is enabled later.
    ``setup`` is called after it, if the configuration enables the feature. ``checks`` are those of ``cfo doctor``, by
    name.
    """

    name: str
    title: str
    enabled: Callable[[OperatorConfiguration], bool]
    platform_kind: GVK | None = None
    kinds: tuple[GVK, ...] = ()
    views: Callable[[], tuple[KindView, ...]] = tuple
    shared: bool = False
    crds: Callable[[], list[Object]] = list
    finalizers: Mapping[GVK, str] = msgspec.field(default_factory=dict)
    leftovers: tuple[Leftovers, ...] = ()
    base_rules: Callable[[str], list[Rule]] = lambda namespace: []
    rules: Callable[[], Sequence[Rule]] = list
    probe: Rule | None = None
    bound_roles: Mapping[str, Iterable[Rule]] = msgspec.field(default_factory=dict)
    user_roles: tuple[UserRole, ...] = ()
    field_managers: tuple[str, ...] = ()
    setup_webhooks: Callable[[Context], None] = lambda context: None
    setup: Callable[[Context], None] = lambda context: None
    checks: Mapping[str, Check] = msgspec.field(default_factory=dict)


def lazy(reference: str) -> Callable[..., Any]:
    """Return a function that imports ``MODULE:NAME`` when it is called, and calls it, or returns it if it is data."""

    def call(*arguments: Any) -> Any:
        module, _, name = reference.partition(":")
        found = getattr(import_module(module), name)
        return found(*arguments) if callable(found) else found

    return call


def api_rules(verbs: Sequence[str], group: str, *resources: str) -> list[Rule]:
    """Return the rules of a user role: ``verbs`` for each of ``resources``, and to read its status."""
    return [
        rule
        for name in resources
        for rule in (Rule(group, name, verbs), Rule(group, f"{name}/status", "get"))
    ]


def review_rules(namespace: str) -> list[Rule]:
    """Return the permissions of webhooks that ask the API server what users are allowed to create."""
    from cfo.webhooks.access import RULES

    return list(RULES)
