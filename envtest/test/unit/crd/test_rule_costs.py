"""Limits of the estimated costs of validation rules, with the messages that kube-apiserver 1.36 answers."""

from __future__ import annotations

from typing import Any

from envtest.crd.structural import schema_errors

HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
TOTAL = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of"
PART = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"


def rules(*expressions: str) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": rule} for rule in expressions]}


def errors(spec: dict[str, Any], **options: Any) -> list[str]:
    schema = {"type": "object", "properties": {"spec": spec}}
    found = schema_errors(schema, "schema", has_status=False, **options)
    return [str(error).removeprefix("schema.properties[spec].") for error in found]


def matching(length: int, rule: str = "self.matches('^[a-z]{1,9}x?$')") -> dict[str, Any]:
    return {"type": "string", "maxLength": length, **rules(rule)}


def test_unlimited_lists_of_unlimited_strings_are_too_expensive() -> None:
    item = {"type": "string", **rules("self.matches('^[a-z]$')")}
    path = "items.items.x-kubernetes-validations[0].rule: Forbidden:"
    assert errors({"type": "array", "items": {"type": "array", "items": item}}) == [
        f"{path} estimated rule cost exceeds budget by factor of more than 100x {HINT}",
        f"{path} {PART}",
        f"schema: Forbidden: {TOTAL} more than 100x {HINT}",
    ]


def test_limits_of_lists_and_maps_multiply() -> None:
    (text,) = errors({"type": "array", "maxItems": 1000, "items": matching(9000)})
    assert text == (
        "items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.440500x "
        f"{HINT}"
    )
    entries = {"type": "object", "maxProperties": 10, "additionalProperties": matching(900)}
    (text,) = errors({"type": "array", "maxItems": 1000, "items": entries})
    assert "factor of 1.445000x" in text
    assert not errors({"type": "array", "maxItems": 500, "items": entries})


def test_all_rules_together_are_limited() -> None:
    fields = {
        f"f{position}": {"type": "array", "maxItems": 600 + position, "items": matching(9000)}
        for position in range(12)
    }
    found = errors({"type": "object", "properties": fields})
    reported = [text for text in found if PART in text]
    assert [text.partition("[")[2][:3] for text in reported] == ["f11", "f10", "f9]", "f8]"]
    assert found[-1] == f"schema: Forbidden: {TOTAL} 1.046667x {HINT}"
    assert len(found) == 5


def test_message_expressions_are_limited() -> None:
    rule = {"rule": "self.size() < 9", "messageExpression": "self.map(x, x).join(',')"}
    spec = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule]}
    texts = errors(spec)
    path = "x-kubernetes-validations[0].messageExpression: Forbidden:"
    assert texts[0].startswith(f"{path} estimated messageExpression cost exceeds budget")


def test_unchanged_schemas_can_exceed_the_limit_of_a_rule_but_not_of_all() -> None:
    expensive = {"type": "array", "maxItems": 1000, "items": matching(9000)}
    assert errors(expensive)
    assert not errors(expensive, is_unchanged=True)
    endless = {"type": "array", "items": matching(9000)}
    assert PART in errors(endless, is_unchanged=True)[0]
