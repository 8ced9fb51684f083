"""Typed resources: a class declares a kind, and its instances are the objects of the kind.

.. code-block:: python

    class WebsiteSpec(APIModel):
        html: str
        replicas: Int32 = Field(default=1, ge=0)


    class WebsiteStatus(APIModel):
        ready_replicas: Int32 = 0


    class Website(CustomResource, group="example.com", version="v1", short_names=["ws"]):
        spec: WebsiteSpec
        status: WebsiteStatus = Field(default_factory=WebsiteStatus)


    website = await client.get(Website, request)  # Website | None

The wire form of an instance has the fields that were set, read or changed, and all unknown fields of the object. A
field that is ``None`` is absent. Defaults are not written: the API server sets those of the CRD.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from cfo.runtime.objects.errors import InvalidResource, SchemaError
from cfo.runtime.objects.field import FieldError, Path, invalid, required
from cfo.runtime.objects.kinds import plural as guess_plural
from cfo.runtime.objects.resource.declaration import Declaration, PrinterColumn, Scale
from cfo.runtime.objects.resource.field_types import Int64, Time
from cfo.runtime.objects.resource.model import APIModel, CELRule, mark_changes, require_items
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    TypedObject,
    gvk_of,
    key_of,
    require_key,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MAX_ERRORS = 20

_PREFIXES: Final = {"value_error": "Value error, ", "assertion_error": "Assertion failed, "}
"""What pydantic writes before the message of a :class:`ValueError` or an ``assert`` in a validator."""


class OwnerReference(APIModel):
    """A reference to an object that owns this one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(APIModel):
    """The metadata that every object has (`ObjectMeta`_).

    .. _ObjectMeta: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[OwnerReference] = Field(default_factory=list)
    managed_fields: list[dict[str, Any]] = Field(default_factory=list)


class CustomResource(APIModel, TypedObject):
    """Base class of typed resources. A subclass declares the fields ``spec`` and ``status``, and these class keywords:

    ``group`` and ``version`` are required; without them the class declares no kind, but is a base class of others.
    ``kind`` is by default the name of the class, ``plural`` its English plural, ``singular`` the kind in lower case.
    ``scope`` is ``Namespaced`` or ``Cluster``. ``short_names`` and ``categories`` are names for kubectl,
    ``printer_columns`` its columns. ``validations`` are CEL rules of the whole object, ``scale`` the paths of the scale
    subresource. If a kind has several versions, one class for each, exactly one of them has ``storage`` true;
    ``served`` false and ``deprecation_warning`` phase a version out. The status is a subresource, if the class has a
    field ``status``, which must have a default: an object has no status when it is created.

    Raises :class:`SchemaError` for an invalid declaration.
    """

    gvk: ClassVar[GVK]
    declaration: ClassVar[Declaration]

    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    def __init_subclass__(
        cls,
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        singular: str = "",
        scope: Literal["Namespaced", "Cluster"] = "Namespaced",
        short_names: Sequence[str] = (),
        categories: Sequence[str] = (),
        printer_columns: Sequence[PrinterColumn] = (),
        validations: Sequence[CELRule] = (),
        scale: Scale | None = None,
        storage: bool = True,
        served: bool = True,
        deprecation_warning: str = "",
        **keywords: Any,
    ) -> None:
        super().__init_subclass__(validations=validations, **keywords)
        if not group and not version:
            return
        kind = kind or cls.__name__
        for name, values in {"short_names": short_names, "categories": categories}.items():
            if isinstance(values, str):
                raise SchemaError(f"class {kind}: {name}: {values!r}: must be a list of strings")
        require_items(kind, "printer_columns", printer_columns, PrinterColumn)
        if scale is not None and not isinstance(scale, Scale):
            raise SchemaError(f"class {kind}: scale: {scale!r:.200}: must be Scale(...)")
        cls.declaration = Declaration(
            group=group,
            version=version,
            kind=kind,
            plural=plural or guess_plural(kind),
            singular=singular or kind.lower(),
            scope=scope,
            short_names=tuple(short_names),
            categories=tuple(categories),
            printer_columns=tuple(printer_columns),
            scale=scale,
            storage=storage,
            served=served,
            deprecation_warning=deprecation_warning,
        )
        cls.gvk = cls.declaration.gvk

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        """Check the fields. Raises :class:`SchemaError` for a status without a default."""
        super().__pydantic_init_subclass__(**keywords)
        status = cls.model_fields.get("status")
        if status is not None and status.is_required():
            raise SchemaError(
                f"class {cls.__name__}: status: must have a default, such as Field(default_factory=WebsiteStatus), "
                "because an object has no status when it is created"
            )

    @classmethod
    def decode(cls, obj: Object) -> Self:
        """Return ``obj`` as an instance.

        Raises :class:`InvalidResource` if it is of another kind, or if a field does not fit the class.
        """
        gvk = gvk_of(obj)
        identity = f"{cls.gvk.kind} {key_of(obj)}"
        if gvk != cls.gvk:
            raise InvalidResource(
                identity, [invalid("apiVersion, kind", str(gvk), f"must be {cls.gvk}")]
            )
        content = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
        try:
            return cls.model_validate(content, by_alias=True, by_name=False)
        except ValidationError as error:
            raise InvalidResource(identity, _field_errors(error)) from None

    def to_object(self) -> Object:
        """Return the object in its wire form; the caller owns the result."""
        mark_changes(self)
        content: Object = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {"apiVersion": self.gvk.api_version, "kind": self.gvk.kind, **content}

    def wire_metadata(self) -> Object:
        """Return a copy of ``metadata`` in its wire form; the rest of the object is not encoded."""
        mark_changes(self.metadata)
        return self.metadata.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def intent(cls, key: NamespacedName, **fields: Any) -> Object:
        """Return the wire form of an object that has only ``fields``, to apply a part of an object such as its status.

        ``await client.apply(Website.intent(request, status=WebsiteStatus(ready_replicas=3)), subresource="status")``

        Raises :class:`InvalidResource` for a value that does not fit the class, and :class:`TypeError` for a field that
        the class does not have.
        """
        require_key(f"{cls.__name__}.intent", key)
        metadata = {name: value for name, value in key._asdict().items() if value}
        wire: Object = {
            "apiVersion": cls.gvk.api_version,
            "kind": cls.gvk.kind,
            "metadata": metadata,
        }
        for name, value in fields.items():
            declared = cls.model_fields.get(name)
            if declared is None or name == "metadata":
                raise TypeError(
                    f"{cls.__name__}.intent: {name!r} is not a field that can be applied"
                )
            adapter = _adapter(cls, name)
            try:
                checked = adapter.validate_python(value)
            except ValidationError as error:
                raise InvalidResource(f"{cls.gvk.kind} {key}", _field_errors(error, name)) from None
            mark_changes(checked)
            wire[declared.alias or name] = adapter.dump_python(
                checked, mode="json", by_alias=True, exclude_unset=True
            )
        return wire

    @property
    def key(self) -> NamespacedName:
        """The namespace and name of the object."""
        return NamespacedName(self.metadata.namespace, self.metadata.name)

    @property
    def is_deleting(self) -> bool:
        """Whether deletion was requested, so that only finalizers delay it."""
        return bool(self.metadata.deletion_timestamp)


@cache
def _adapter(resource: type[CustomResource], field: str) -> TypeAdapter[Any]:
    annotation: Any = resource.model_fields[field].annotation
    return TypeAdapter(annotation)


def _field_errors(error: ValidationError, root: str = "") -> list[FieldError]:
    """Return the errors of pydantic as field errors with wire paths."""
    found = []
    for detail in error.errors(include_url=False, include_context=False)[:_MAX_ERRORS]:
        path = Path(root)
        for step in detail["loc"]:
            path = path.index(step) if isinstance(step, int) else path.child(step)
        if detail["type"] == "missing":
            found.append(required(path))
        else:
            found.append(invalid(path, detail["input"], _message(detail)))
    return found


def _message(detail: ErrorDetails) -> str:
    """Return the message of an error; of one that the code of a class raised, only what that code says."""
    prefix = _PREFIXES.get(detail["type"], "")
    return detail["msg"].removeprefix(prefix) or "is not valid"
