"""What the class of a typed resource declares about its kind, except the schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from cfo.runtime.objects.errors import SchemaError
from cfo.runtime.objects.kinds import plural as guess_plural
from cfo.runtime.objects.unstructured import GVK, Object, ObjectKind

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")


def _check_path(name: str, path: object, *starts: str) -> None:
    """Raise :class:`SchemaError` unless ``path`` is a JSONPath that begins with one of ``starts``."""
    if not isinstance(path, str) or not path.startswith(starts):
        allowed = " or ".join(starts)
        raise SchemaError(f"{name}: {path!r}: must be a JSONPath that starts with {allowed}")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of ``kubectl get``: ``PrinterColumn("Ready", ".status.readyReplicas", "integer")``.

    ``json_path`` is the path of the value in the object. Columns with a ``priority`` above 0 are shown only with
    ``-o wide``. Raises :class:`SchemaError` for another type, and for a path that does not start with a dot.
    """

    name: str
    json_path: str
    type: Literal["boolean", "date", "integer", "number", "string"] = "string"
    priority: int = 0
    description: str = ""
    format: str = ""

    def __post_init__(self) -> None:
        if self.type not in _COLUMN_TYPES:
            types = ", ".join(_COLUMN_TYPES)
            raise SchemaError(
                f"PrinterColumn {self.name!r}: type: {self.type!r}: must be one of {types}"
            )
        _check_path(f"PrinterColumn {self.name!r}: json_path", self.json_path, ".")

    def entry(self) -> Object:
        """Return the entry of ``additionalPrinterColumns``."""
        column: Object = {"name": self.name, "type": self.type, "jsonPath": self.json_path}
        optional = {
            "priority": self.priority,
            "description": self.description,
            "format": self.format,
        }
        # What is left out has these values on the API server, too.
        return column | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale subresource: the paths of the replica counts, and of a label selector for the pods.

    ``Scale(spec_replicas=".spec.replicas", status_replicas=".status.readyReplicas")``

    Raises :class:`SchemaError` for a path outside of the spec or the status.
    """

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""

    def __post_init__(self) -> None:
        _check_path("Scale: spec_replicas", self.spec_replicas, ".spec.")
        _check_path("Scale: status_replicas", self.status_replicas, ".status.")
        if self.label_selector:
            _check_path("Scale: label_selector", self.label_selector, ".spec.", ".status.")

    def entry(self) -> Object:
        """Return the value of ``subresources.scale``."""
        paths: Object = {}
        if self.label_selector:
            paths["labelSelectorPath"] = self.label_selector
        paths["specReplicasPath"] = self.spec_replicas
        paths["statusReplicasPath"] = self.status_replicas
        return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One version of a kind. Raises :class:`SchemaError` for an invalid name.

    ``storage`` and ``served``: whether objects are stored in this version, and whether the API has it.
    ``categories``: names such as ``all`` under which ``kubectl get`` lists the kind. ``deprecation_warning``:
    the warning that clients of the version get; empty: it is not deprecated.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    scope: Literal["Namespaced", "Cluster"]
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    printer_columns: tuple[PrinterColumn, ...]
    scale: Scale | None
    storage: bool
    served: bool
    deprecation_warning: str

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise self._invalid("kind", self.kind, "a CamelCase word of at most 63 characters")
        if not _GROUP.fullmatch(self.group) or len(self.group) > 253:
            raise self._invalid(
                "group", self.group, "a domain name of two or more parts, such as example.com"
            )
        labels = {
            "version": self.version,
            "plural": self.plural,
            "singular": self.singular,
        }
        for name, value in labels.items():
            if not _DNS_LABEL.fullmatch(value):
                raise self._invalid(name, value, "a lower-case DNS label that starts with a letter")
        if self.scope not in ("Namespaced", "Cluster"):
            raise self._invalid("scope", self.scope, "Namespaced or Cluster")

    def _invalid(self, keyword: str, value: Any, allowed: str) -> SchemaError:
        return SchemaError(f"class {self.kind}: {keyword}: {value!r}: must be {allowed}")

    @property
    def gvk(self) -> GVK:
        """Group, version and kind."""
        return GVK(self.group, self.version, self.kind)

    @property
    def names(self) -> Object:
        """The value of ``spec.names`` of the CRD."""
        names: Object = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.singular,
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        if self.categories:
            names["categories"] = list(self.categories)
        return names


def plural_of(resource: ObjectKind[Any]) -> str:
    """Return the plural resource name that the class ``resource`` declares; it is guessed for a GVK."""
    declared: Declaration | None = getattr(resource, "declaration", None)
    if declared is None:
        return guess_plural(resource.gvk.kind)
    return declared.plural
