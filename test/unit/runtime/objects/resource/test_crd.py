"""The CRDs of typed resources, and the limits of structural schemas."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pytest
from pydantic import (
    UUID4,
    AfterValidator,
    BaseModel,
    Field,
    HttpUrl,
    Json,
    PlainSerializer,
    Secret,
    SecretBytes,
    SecretStr,
    computed_field,
)
from typing_extensions import TypeAliasType

from cfo.runtime import (
    APIModel,
    CELRule,
    CustomResource,
    Duration,
    custom_resource_definition,
)
from cfo.runtime.objects import IntOrString, PrinterColumn, Scale, SchemaError, list_map
from cfo.runtime.objects.parsers import DURATION_PATTERN
from cfo.runtime.objects.resource.schema import structural_schema
from test.support.website import Website, WebsiteBeta

if TYPE_CHECKING:
    Later = Any  # a type that is not defined yet


def test_crd_has_the_declared_names_columns_rules_and_list_types() -> None:
    crd = custom_resource_definition(Website)
    assert crd["metadata"]["name"] == "websites.example.com"
    assert crd["spec"]["names"] == {
        "kind": "Website",
        "listKind": "WebsiteList",
        "plural": "websites",
        "singular": "website",
        "shortNames": ["ws"],
        "categories": ["all"],
    }
    (version,) = crd["spec"]["versions"]
    assert version["additionalPrinterColumns"] == [
        {"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"}
    ]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.readyReplicas",
        },
    }
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["required"] == ["spec"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    spec = schema["properties"]["spec"]
    assert spec["x-kubernetes-validations"] == [
        {"rule": "self.replicas < 10", "message": "too many replicas"}
    ]
    fields = spec["properties"]
    assert fields["html"]["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "is immutable"}
    ]
    assert fields["replicas"] == {"type": "integer", "format": "int32", "minimum": 0, "default": 1}
    assert fields["hosts"]["x-kubernetes-list-type"] == "set"
    assert fields["ports"]["x-kubernetes-list-map-keys"] == ["name"]
    number = fields["ports"]["items"]["properties"]["number"]
    assert (number["minimum"], number["exclusiveMinimum"], number["maximum"]) == (0, True, 65535)
    assert "default" not in schema["properties"]["status"]["properties"]["readyReplicas"]


def test_crd_has_all_versions_with_the_deprecation_of_one() -> None:
    crd = custom_resource_definition(Website, WebsiteBeta)
    assert [(version["name"], version["storage"]) for version in crd["spec"]["versions"]] == [
        ("v1", True),
        ("v1beta1", False),
    ]
    assert crd["spec"]["versions"][1]["deprecated"] is True


class OtherScope(
    CustomResource, group="example.com", version="v2", kind="Website", scope="Cluster"
):
    """A version with another scope."""


class OtherShortNames(
    CustomResource, group="example.com", version="v2", kind="Website", short_names=["w"]
):
    """A version with other short names."""


class SecondStorage(
    WebsiteBeta,
    group="example.com",
    version="v3",
    kind="Website",
    short_names=["ws"],
    categories=["all"],
):
    """A version that is also stored."""


class OtherFields(
    CustomResource,
    group="example.com",
    version="v4",
    kind="Website",
    short_names=["ws"],
    categories=["all"],
):
    """A version with another schema."""


class ShortName(APIModel):
    size: int = Field(default=1, le=5)


class LongName(APIModel):
    size: int = Field(default=1, le=50)


class ShortSpec(APIModel):
    title: str = ""
    names: list[ShortName] = Field(default_factory=list)


class LongSpec(APIModel):
    title: str = ""
    names: list[LongName] = Field(default_factory=list)


class ShortNames(CustomResource, group="example.com", version="v1", kind="Site"):
    spec: ShortSpec


class LongNames(CustomResource, group="example.com", version="v2", kind="Site", storage=False):
    spec: LongSpec


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: PrinterColumn("A", ".status.x", cast("Any", "int")),
            "PrinterColumn 'A': type: 'int': must be one of boolean, date, integer, number, string",
        ),
        (
            lambda: PrinterColumn("A", "status.x"),
            "PrinterColumn 'A': json_path: 'status.x': must be a JSONPath that starts with .",
        ),
        (
            lambda: Scale(spec_replicas="spec.replicas", status_replicas=".status.replicas"),
            "Scale: spec_replicas: 'spec.replicas': must be a JSONPath that starts with .spec.",
        ),
        (
            lambda: Scale(spec_replicas=".spec.replicas", status_replicas=".spec.replicas"),
            "Scale: status_replicas: '.spec.replicas': must be a JSONPath that starts with .status.",
        ),
        (
            lambda: Scale(
                spec_replicas=".spec.replicas",
                status_replicas=".status.replicas",
                label_selector="selector",
            ),
            "Scale: label_selector: 'selector': must be a JSONPath that starts with .spec. or .status.",
        ),
    ],
)
def test_declaration_that_the_api_server_rejects_is_rejected(
    declare: Callable[[], object], message: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        declare()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"printer_columns": [PrinterColumn("Names", ".spec.short_names[0]")]},
            "class Site: PrinterColumn 'Names': '.spec.short_names[0]': the schema has no field short_names there",
        ),
        (
            {"scale": Scale(spec_replicas=".spec.size", status_replicas=".status.size")},
            "class Site: Scale: spec_replicas: '.spec.size': the schema has no field size there",
        ),
    ],
)
def test_path_that_leads_to_no_field_is_rejected(keywords: dict[str, Any], message: str) -> None:
    class Site(CustomResource, group="example.com", version="v1", **keywords):
        spec: ShortSpec

    with pytest.raises(SchemaError, match=re.escape(message)):
        custom_resource_definition(Site)


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("has(self.spec.host_name)", "host_name: must be hostName"),
        ("oldSelf.spec.host_name == self.spec.hostName", "host_name: must be hostName"),
        ("has(self.spec.hostName) && self.spec.hostName.lowerAscii() == 'host_name'", ""),
        ("self.spec.other_name == 1", ""),  # the API server reports what is no field at all
    ],
)
def test_rule_has_the_wire_names_of_fields(rule: str, wrong: str) -> None:
    class Spec(APIModel):
        host_name: str

    validations = [CELRule(rule=rule, message="is wrong")]

    class Site(CustomResource, group="example.com", version="v1", validations=validations):
        spec: Spec

    expected = f"the class: CELRule: rule {rule!r}: the schema has no field {wrong}"
    expectation = pytest.raises(SchemaError, match=re.escape(expected)) if wrong else nullcontext()
    with expectation:
        custom_resource_definition(Site)


def test_key_of_a_list_map_is_the_wire_name_of_a_field() -> None:
    class Item(APIModel):
        host_name: str

    class Items(APIModel):
        items: Annotated[list[Item], list_map("host_name")]

    with pytest.raises(SchemaError, match="items: list_map: 'host_name': must be the camelCase"):
        structural_schema(Items)


class Base(CustomResource):
    """A class without a kind."""


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ([], "at least one version"),
        ([Base], "class Base: declares no kind"),
        (
            [WebsiteBeta, OtherFields],
            "the versions must have the same schema: v1beta1 and v4 differ in spec$",
        ),
        (
            [ShortNames, LongNames],
            r"the versions must have the same schema: v1 and v2 differ in spec.names\[\].size$",
        ),
        ([Website, OtherScope], "scope of v2 and v1 must be equal: 'Cluster', 'Namespaced'"),
        ([Website, OtherShortNames], r"shortNames of v2 and v1 must be equal: \['w'\], \['ws'\]"),
        (
            [Website, SecondStorage],
            "storage must be true for exactly one version; it is true for: v1, v3",
        ),
        ([WebsiteBeta], "storage must be true for exactly one version; it is true for: none"),
        ([Website, Website], "several classes declare the same version"),
    ],
)
def test_versions_that_do_not_fit_together_are_rejected(
    versions: list[type[CustomResource]], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        custom_resource_definition(*versions)


class Node(APIModel):
    """A type that contains itself."""

    children: list[Node] = Field(default_factory=list)


DURATION: dict[str, Any] = {
    "type": "string",
    "format": "duration",
    "maxLength": 64,
    "pattern": f"^{DURATION_PATTERN}$",
}


def model_with(annotation: Any) -> type[APIModel]:
    return type("Model", (APIModel,), {"__annotations__": {"field": annotation}})


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (int | str, "field: a union of types has no structural schema"),
        (tuple[int, str], "field: a tuple has no structural schema"),
        (
            Node,
            r"field\.children\[\]: the type Node, which contains itself, has no structural schema",
        ),
        (list[dict[str, int | bool]], r"field\[\]\.\*: a union of types"),
        (
            Annotated[Duration, Field(ge=timedelta(seconds=1))],
            r"field: ge: a limit of this type .*: use validations\(CELRule\(rule=\"self >= ",
        ),
    ],
)
def test_types_that_crds_cannot_express_are_rejected(annotation: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        structural_schema(model_with(annotation))


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (
            IntOrString,
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            },
        ),
        (list[Duration], {"type": "array", "items": DURATION}),
        (Duration | None, DURATION),
        (Annotated[int, Field(gt=1, ge=2)], {"type": "integer", "minimum": 2}),
        (
            Annotated[float, Field(lt=1, multiple_of=0.5)],
            {"type": "number", "maximum": 1, "exclusiveMaximum": True, "multipleOf": 0.5},
        ),
        (
            Annotated[str | None, Field(min_length=1, pattern="a+")],
            {"type": "string", "minLength": 1, "pattern": "a+"},
        ),
    ],
)
def test_constraints_of_fields_are_in_the_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert structural_schema(model_with(annotation))["properties"]["field"] == schema


def test_default_durations_are_go_durations_in_the_schema() -> None:
    class Timeouts(APIModel):
        interval: Duration = timedelta(seconds=90)
        retries: list[Duration] = Field(default=[timedelta(seconds=1), timedelta(hours=1)])
        named: dict[str, Duration] = Field(default={"slow": timedelta(minutes=5)})

    properties = structural_schema(Timeouts)["properties"]
    assert properties["interval"]["default"] == "1m30s"
    assert properties["retries"]["default"] == ["1s", "1h"]
    assert properties["named"]["default"] == {"slow": "5m"}


@pytest.mark.parametrize(
    "annotation",
    [
        timedelta,
        timedelta | None,
        list[timedelta],
        dict[str, timedelta],
        Annotated[timedelta, Field(gt=timedelta(0))],
    ],
)
def test_field_of_type_timedelta_is_rejected_when_the_class_is_defined(annotation: Any) -> None:
    with pytest.raises(
        SchemaError,
        match=r"field: timedelta reads no Go durations such as 30s: use Duration of cfo\.runtime",
    ):
        model_with(annotation)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (bytes, "bytes are not decoded from base64: use str"),
        (datetime, r"datetime drops nanoseconds: use Time of cfo\.runtime\.objects"),
        (Decimal, r"Decimal is a number or a string: use Quantity of cfo\.runtime"),
        (SecretStr, "SecretStr can be written in another form than it was read"),
        (SecretBytes, "SecretBytes can be written in another form"),
        (HttpUrl, "HttpUrl can be written in another form"),
        (UUID4, "UUID can be written in another form"),
        (Secret[str], "Secret can be written in another form"),
        (Json[int], "Json can be written in another form"),
        (Annotated[SecretStr, AfterValidator(str)], "SecretStr can be written in another form"),
        (TypeAliasType("Alias", SecretStr), "SecretStr can be written in another form"),
        (deque[str], "deque can be written in another form"),
    ],
)
def test_field_with_another_form_in_json_is_rejected_when_the_class_is_defined(
    annotation: Any, message: str
) -> None:
    with pytest.raises(SchemaError, match=f"field: {message}"):
        model_with(list[annotation])


def test_type_with_a_serializer_is_allowed() -> None:
    model = model_with(
        Annotated[SecretStr, PlainSerializer(lambda value: value.get_secret_value())]
    )
    stored = {"field": "kept"}
    assert model.model_validate(stored).model_dump(mode="json") == stored


def test_field_that_an_update_would_drop_or_add_is_rejected() -> None:
    with pytest.raises(SchemaError, match="class Dropping: field: exclude: an update would drop"):

        class Dropping(APIModel):
            field: str = Field(exclude=True)

    with pytest.raises(SchemaError, match="class Adding: field: a computed field would be written"):

        class Adding(APIModel):
            @computed_field
            def field(self) -> str:
                return ""


@dataclass
class DataclassPart:
    """A part of a model that is a dataclass."""

    max_size: int


class OtherPart(BaseModel):
    """A part of a model that is another pydantic model."""

    max_size: int


@pytest.mark.parametrize("part", [DataclassPart, OtherPart])
def test_part_that_would_drop_unknown_fields_is_rejected_when_the_class_is_defined(
    part: Any,
) -> None:
    with pytest.raises(SchemaError, match=rf"field: {part.__name__} .* must be a subclass of APIM"):
        model_with(dict[str, part])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (timedelta, "part: timedelta reads no Go durations"),
        (Decimal, "part: Decimal is a number or a string"),
        (OtherPart, r"part: OtherPart .* must be a subclass of APIModel"),
    ],
)
def test_type_that_is_defined_later_is_rejected_in_the_crd(part: Any, message: str) -> None:
    class Outer(APIModel):
        part: Later

    Outer.model_rebuild(_types_namespace={"Later": part})
    with pytest.raises(SchemaError, match=message):
        structural_schema(Outer)


class Counted(APIModel):
    count: int


def test_status_without_a_default_is_rejected() -> None:
    """An API server drops the status of an object that is created, so the class could read no new object."""
    with pytest.raises(SchemaError, match=r"class Counter: status: must have a default"):

        class Counter(CustomResource, group="example.com", version="v1"):
            status: Counted

    class Other(CustomResource, group="example.com", version="v1"):
        status: Counted = Field(default_factory=cast("Any", Counted))

    with pytest.raises(SchemaError, match=r"class Other: status.count: must have a default"):
        custom_resource_definition(Other)
