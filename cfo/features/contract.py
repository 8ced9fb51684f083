"""What the rest of the operator may ask of a feature: the contract that each module in :mod:`cfo.features` fulfills.

A feature is a :class:`Kind`, an :class:`OptionalRole` of the operator, or both. It is cheap to import: its methods
import controllers, webhooks, models and views in their bodies, so an operator does not import the controllers of a
feature that is disabled. Its records are structs, which cost less at every start than dataclasses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from cfo.runtime import GVK, Object, Rule

if TYPE_CHECKING:
    from cfo.checks.findings import Check
    from cfo.config.model import OperatorConfiguration
    from cfo.config.part import Part
    from cfo.runtime import FieldError, Manager
    from cfo.runtime.webhook import AdmissionRequest
    from cfo.summaries.kind_view import KindView


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the setup of a feature gets.

    ``namespace`` is the operator's namespace. ``kinds`` are those that the configuration enables. ``serves_webhooks``:
    whether this process has a webhook server. ``embedded_validators`` return the errors with which an object of their
    kind would be refused if the user of a request created it in the request's namespace; each kind adds its own, for
    kinds whose objects create such objects.
    """

    manager: Manager
    configuration: OperatorConfiguration
    namespace: str
    serves_webhooks: bool
    kinds: Sequence[Kind] = ()
    embedded_validators: dict[
        GVK, Callable[[Object, AdmissionRequest], Awaitable[list[FieldError]]]
    ] = msgspec.field(default_factory=dict)

    @property
    def part(self) -> Part:
        """The objects that this operator reconciles."""
        from cfo.config.part import Part

        return Part.of(self.configuration, self.namespace)


class UserRole(msgspec.Struct, frozen=True):
    """A ClusterRole for users: its name without the prefix, its rules, and the roles into which it is aggregated.

    Roles of several kinds with one name are one role.
    """

    name: str
    rules: Sequence[Rule]
    into: tuple[str, ...]


class Leftovers(msgspec.Struct, frozen=True):
    """Objects outside the installation that an uninstall deletes: those with a label, and with ``name`` if given.

    ``namespace_label`` is the label of cluster-scoped objects with the namespace of the object that they belong to.
    """

    gvk: GVK
    label: str
    name: str = ""
    namespace_label: str = ""


class Feature(ABC):
    """A part of the operator that its configuration enables.

    ``name`` is the name of its modules and of its component in the manifests, ``title`` its name in sentences.
    """

    name: str
    title: str

    @abstractmethod
    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        """Return whether ``configuration`` enables the feature."""

    def setup(self, context: Context) -> None:  # noqa: B027 (most roles have no controllers of their own)
        """Add the controllers to the manager. It is called only if the configuration enables the feature."""


class OptionalRole(Feature):
    """A ClusterRole of the operator that is installed only with the feature, as a component of the manifests.

    ``probes`` are permissions of this role: an operator that has all of them also has all others of the role, whatever
    other roles are installed. If it lacks one, the role is not installed. ``platform_kind``: the feature needs a
    platform that serves this kind (``None``: any). ``retained`` are objects that the operator creates in its role, and
    deletes with ``release_rules`` also after the feature was disabled (``None``: there are none).
    """

    probes: tuple[Rule, ...]
    platform_kind: GVK | None = None
    retained: Leftovers | None = None
    release_rules: tuple[Rule, ...] = ()

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """Return the permissions of the role."""

    def bound_roles(self) -> Mapping[str, Sequence[Rule]]:
        """Return names and permissions of the ClusterRoles that the operator binds to other subjects."""
        return {}


class Kind(Feature):
    """A kind of objects, or several that belong together, with everything that the operator does for them.

    ``gvks`` are its kinds; those that create objects of others come first. ``field_managers`` are the field managers of
    its writes. ``shared``: operators of several versions share the kinds, each of which selects its own objects, so
    ``labelSelector`` does not apply to them, their CRDs are installed separately where OLM would allow only one owner,
    and an uninstall keeps the objects.
    """

    gvks: tuple[GVK, ...]
    field_managers: tuple[str, ...]
    shared: bool = False

    @abstractmethod
    def views(self) -> tuple[KindView, ...]:
        """Return how people see the objects."""

    def crds(self) -> list[Object]:
        """Return the CRDs that the installation contains."""
        return []

    def base_rules(self, namespace: str) -> Sequence[Rule]:
        """Return the permissions that every operator in ``namespace`` has, even if the kind is disabled."""
        return ()

    def user_roles(self) -> Sequence[UserRole]:
        """Return the roles for users of the objects."""
        return ()

    def finalizers(self) -> Mapping[GVK, str]:
        """Return the finalizers of the objects, and of others that the operator creates; an uninstall removes them."""
        return {}

    def conditions(self) -> Mapping[GVK, Collection[str]]:
        """Return the types of conditions that the operator adds to others' statuses; an uninstall removes them."""
        return {}

    def leftovers(self) -> Sequence[Leftovers]:
        """Return what else an uninstall deletes."""
        return ()

    def checks(self) -> Mapping[str, Check]:
        """Return the checks of ``cfo doctor``, by name."""
        return {}

    def setup_webhooks(self, context: Context) -> None:
        """Register the webhooks with the manager. It is called if this process serves webhooks, before :meth:`setup`.

        Also if the kind is disabled: the manifests contain the webhooks, and objects that are created without them
        would bypass validation when the kind is enabled later.
        """

    @abstractmethod
    def setup(self, context: Context) -> None:
        """Add the controllers to the manager. It is called only if the configuration enables the kind."""


def api_rules(verbs: Sequence[str], group: str, *resources: str) -> list[Rule]:
    """Return the rules of a user role: ``verbs`` for each of ``resources``, and to read its status."""
    rules = []
    for name in resources:
        rules.append(Rule(group, name, verbs))
        rules.append(Rule(group, f"{name}/status", "get"))
    return rules
