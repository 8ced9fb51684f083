"""What every other room may ask of a feature: the contract that a module in :mod:`cfo.features` fulfills.

A feature is cheap to import: controllers, webhooks, models and summaries are imported inside the functions that need
them, so an operator does not import the controllers of a feature that is disabled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cfo.config import OperatorConfiguration
from cfo.runtime import GVK, Manager, Object, Rule

if TYPE_CHECKING:
    from cfo.console.summaries import Related, Summary

__all__ = ["Context", "Feature", "KindView", "Leftovers", "UserRole"]


@dataclass(slots=True, kw_only=True)
class Context:
    """What the setup of a feature gets, in addition to the manager and the configuration.

    ``namespace`` is the operator's namespace; ``serves_webhooks``: whether this process has a webhook server.
    ``embedded_validators`` are functions that validate an object of a kind inside another object, registered by the
    feature of the kind for features that are set up later.
    """

    manager: Manager
    configuration: OperatorConfiguration
    namespace: str
    serves_webhooks: bool
    embedded_validators: dict[GVK, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindView:
    """How people see the objects of a kind: in ``cfo status``, the live view, the page and the demo.

    ``summarize`` returns the summary of an object. ``pod_label`` is the label of pods with the name of the object that
    they belong to (empty: none). ``row`` returns the fields of its row on the page in addition to those of every
    kind. ``final_state`` is the state of a summary in which the demo considers the object settled, and ``expected``
    returns the objects that must exist then.
    """

    gvk: GVK
    summarize: Callable[[Object, Related], Summary]
    pod_label: str = ""
    row: Callable[[Summary], Mapping[str, Any]] | None = None
    final_state: str = ""
    expected: Callable[[Object], Iterable[tuple[GVK, str]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRole:
    """A ClusterRole for users: its name without the prefix, its rules, and the roles into which it is aggregated."""

    name: str
    rules: tuple[Rule, ...]
    into: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Objects outside the installation that an uninstall deletes: those with a label, and with ``name`` if given."""

    gvk: GVK
    label: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature of the operator.

    ``name`` is the name of its component in the manifests, ``title`` its name in sentences. ``enabled`` says whether a
    configuration enables it; with a ``platform_kind``, the API server must also serve that kind.

    ``base_rules`` are the permissions that every operator in a namespace has, ``rules`` those of the feature's own
    role, which is installed only with the feature; ``probe`` is the permission (group, resource with subresource,
    verb) that identifies this role. ``bound_roles`` are the names and rules of the ClusterRoles that the operator
    binds to other subjects. ``user_roles`` are roles for users.

    ``views`` are the kinds that people see, ``selected`` those to which ``labelSelector`` applies, ``field_managers``
    the field managers of its writes. ``setup_webhooks`` is called if this process serves webhooks, even if the feature
    is disabled: the manifests contain all webhooks, and objects that are created without them would bypass validation
    when the feature is enabled later. ``setup`` is called if the feature is enabled.

    ``crds`` are its own CRDs. An uninstall removes ``finalizers`` and deletes ``leftovers``, and, with the CRDs, the
    objects of ``owned``, in this order.
    """

    name: str
    title: str
    enabled: Callable[[OperatorConfiguration], bool]
    platform_kind: GVK | None = None
    base_rules: Callable[[str], list[Rule]] | None = None
    rules: Callable[[], list[Rule]] | None = None
    probe: tuple[str, str, str] = ("", "", "")
    bound_roles: Callable[[], Mapping[str, Iterable[Rule]]] | None = None
    user_roles: tuple[UserRole, ...] = ()
    views: tuple[KindView, ...] = ()
    selected: tuple[GVK, ...] = ()
    field_managers: tuple[str, ...] = ()
    setup_webhooks: Callable[[Context], None] | None = None
    setup: Callable[[Context], None] | None = None
    crds: Callable[[], list[Object]] | None = None
    owned: tuple[GVK, ...] = ()
    finalizers: tuple[tuple[GVK, str], ...] = ()
    leftovers: tuple[Leftovers, ...] = ()
