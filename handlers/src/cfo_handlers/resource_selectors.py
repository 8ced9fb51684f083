"""Resource selectors: how handlers name the resources that they are for.

``on.create("kopfexamples")``, ``("kopf.dev", "v1", "kopfexamples")``, ``("kopf.dev/v1", "kex")``,
``"kex.v1.kopf.dev"``, keywords such as ``kind="KopfExample"`` or ``category="all"``, :data:`EVERYTHING`, or a function.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cfo.runtime.client import Resource as DiscoveredResource
from cfo.runtime.objects import GVK

_NAME_VERSION_GROUP = re.compile(r"[^.]+\.v\d+((alpha|beta)\d+)?(\..+)?")


class Marker(enum.Enum):
    """Selects every resource except Events."""

    EVERYTHING = enum.auto()


EVERYTHING: Final = Marker.EVERYTHING


@dataclass(frozen=True)
class Resource:
    """A resource of the API server. ``preferred``: its version is the preferred one of the group."""

    group: str
    version: str
    plural: str
    kind: str = ""
    singular: str = ""
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()
    namespaced: bool = True
    preferred: bool = True
    verbs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, found: DiscoveredResource, *, preferred: bool) -> Resource:
        """Return the resource that discovery reported."""
        return cls(
            group=found.gvk.group,
            version=found.gvk.version,
            plural=found.plural,
            kind=found.gvk.kind,
            singular=found.singular,
            shortcuts=frozenset(found.short_names),
            categories=frozenset(found.categories),
            subresources=found.subresources,
            namespaced=found.namespaced,
            preferred=preferred,
            verbs=found.verbs,
        )

    @property
    def gvk(self) -> GVK:
        """Group, version and kind."""
        return GVK(self.group, self.version, self.kind)

    @property
    def name(self) -> str:
        """``plural.group``, the name of a CRD."""
        return f"{self.plural}.{self.group}".rstrip(".")

    def __str__(self) -> str:
        return f"{self.plural}.{self.version}.{self.group}".rstrip(".")


ResourceFunction: TypeAlias = Callable[[Resource], bool]
Argument: TypeAlias = str | Marker | ResourceFunction | None


@dataclass(frozen=True)
class Selector:
    """Selects resources by the given fields; ``any_name`` is a plural, singular, kind or short name."""

    group: str | None = None
    version: str | None = None
    kind: str | None = None
    plural: str | None = None
    singular: str | None = None
    shortcut: str | None = None
    category: str | None = None
    any_name: str | Marker | None = None
    function: ResourceFunction | None = None

    @classmethod
    def of(cls, arguments: Iterable[Any], **fields: str | None) -> Selector:
        """Return the selector for the arguments of a decorator.

        Raises :class:`TypeError` if they do not name a resource, or name it twice.
        """
        given = [argument for argument in arguments if argument is not None]
        values: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
        match given:
            case []:
                pass
            case [str() as text] if _NAME_VERSION_GROUP.fullmatch(text):
                name, version, *rest = text.split(".", 2)
                values |= {"any_name": name, "version": version}
                if rest:
                    values["group"] = rest[0]
            case [str() as text] if "." in text:
                name, _, group_name = text.partition(".")
                values |= {"any_name": name, "group": group_name}
            case [str() | Marker() as name]:
                values["any_name"] = name
            case [function] if callable(function):
                _require_selector(function)
                values["function"] = function
            case [str() as group_version, name] if "/" in group_version:
                group_name, _, version = group_version.rpartition("/")
                values |= {"group": group_name, "version": version, "any_name": name}
            case ["v1", name]:
                values |= {"group": "", "version": "v1", "any_name": name}
            case [str() as group_name, name]:
                values |= {"group": group_name, "any_name": name}
            case [str() as group_name, str() as version, name]:
                values |= {"group": group_name, "version": version, "any_name": name}
            case _:
                raise TypeError(
                    f"resource {given}: must be at most three strings, EVERYTHING, or one function"
                )
        names = ("kind", "plural", "singular", "shortcut", "category", "any_name", "function")
        named = [values[name] for name in names if name in values]
        if not named:
            raise TypeError(
                "a handler must name a resource, as in on.create('kopfexamples'), or be for EVERYTHING"
            )
        if len(named) > 1:
            raise TypeError(f"resource {' and '.join(map(str, named))}: must have exactly one name")
        if named[0] == "":
            raise TypeError("the name of a resource must not be empty")
        return cls(**values)

    def __str__(self) -> str:
        if self.function is not None:
            return getattr(self.function, "__qualname__", "a function")
        if self.any_name is EVERYTHING:
            name = "EVERYTHING"
        elif self.category is not None:
            name = f"category {self.category}"
        else:
            names = (self.any_name, self.plural, self.kind, self.singular, self.shortcut)
            name = next((str(each) for each in names if each is not None), "any")
        return ".".join(filter(None, (name, self.version, self.group)))

    @property
    def is_specific(self) -> bool:
        """Whether one resource is meant, so that several matches are ambiguous."""
        return (
            self.category is None
            and self.function is None
            and not isinstance(self.any_name, Marker)
        )

    def check(self, resource: Resource) -> bool:
        """Return whether the selector matches a resource."""
        if self.version is None and not (resource.preferred or self.function is not None):
            return False
        for name in ("group", "version", "kind", "plural", "singular"):
            if getattr(self, name) not in (None, getattr(resource, name)):
                return False
        if self.shortcut is not None and self.shortcut not in resource.shortcuts:
            return False
        if self.category is not None and self.category not in resource.categories:
            return False
        is_event = resource.plural == "events" and resource.group in ("", "events.k8s.io")
        if self.function is not None:
            return not is_event and self.function(resource)
        if self.any_name is EVERYTHING:
            return not is_event
        names = {resource.kind, resource.plural, resource.singular, *resource.shortcuts}
        return self.any_name is None or self.any_name in names

    def select(self, resources: Iterable[Resource]) -> Collection[Resource]:
        """Return the resources that match; those of the core group have priority, as in kubectl."""
        found = [resource for resource in resources if self.check(resource)]
        if self.is_specific:
            core = [resource for resource in found if resource.group == ""]
            return core or found
        return found


def _require_selector(function: Callable[..., Any]) -> None:
    """Raise :class:`TypeError` for a handler whose decorator has no parentheses, which cannot select resources."""
    if inspect.iscoroutinefunction(function) or not _takes_one_resource(function):
        name = getattr(function, "__qualname__", type(function).__name__)
        raise TypeError(
            f"function {name}: must take one resource and select by it; the decorator of a handler names a resource, "
            "as in @on.create('kopfexamples')"
        )


def _takes_one_resource(function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    try:
        signature.bind("resource")
    except TypeError:
        return False
    first = next(iter(signature.parameters))
    takes_keywords = any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values()
    )
    return (
        first == "resource" or not takes_keywords
    )  # handlers take the keywords that they do not use


def resources_of(served: Iterable[Iterable[DiscoveredResource]]) -> list[Resource]:
    """Return the resources of ``served``: for each group and version, sorted by preference within a group."""
    found: list[Resource] = []
    known: set[tuple[str, str]] = set()
    for version in served:
        new: set[tuple[str, str]] = set()
        for resource in version:
            identity = (resource.gvk.group, resource.plural)
            found.append(Resource.of(resource, preferred=identity not in known))
            new.add(identity)
        known |= new
    return found
