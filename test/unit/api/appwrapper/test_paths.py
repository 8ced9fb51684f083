"""Paths to pod templates: grammar, resolution and errors."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.appwrapper.paths import PathError, object_at, value_at

OBJECT: dict[str, Any] = {"spec": {"a": [{"t": {"x": 1}}, [{"y": 2}]], "b": {"c-d": None}, "n": 3}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("template", OBJECT),
        ("template.spec.n", 3),
        ("template.spec.a[0].t", {"x": 1}),
        ("template.spec.a[1][0].y", 2),
        ("template.spec.b.c-d", None),
    ],
)
def test_path_is_resolved_to_value(path: str, value: Any) -> None:
    assert value_at(OBJECT, path) == value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "first element of the path must be 'template'"),
        ("spec.n", "first element of the path must be 'template'"),
        ("templates", "at path position 'template' invalid path element 's'"),
        ("template.", "at path position 'template.' missing field ''"),
        ("template..spec", "at path position 'template.' missing field '.spec'"),
        ("template.[0]", "at path position 'template.' missing field '[0]'"),
        ("template.x\ny.z", "at path position 'template.' missing field 'x\ny'"),
        ("template[0]", "at path position 'template' found non-array value"),
        ("template.spec.a.t", "at path position 'template.spec.a.' non-map value"),
        ("template.spec.n.t", "at path position 'template.spec.n.' non-map value"),
        ("template.spec.a[0].z", "at path position 'template.spec.a[0].' missing field 'z'"),
        ("template.spec.a[0]t", "at path position 'template.spec.a[0]' invalid path element 't'"),
        ("template.spec.a[2]", "at path position 'template.spec.a' out of bounds index '2'"),
        ("template.spec.a[-1]", "at path position 'template.spec.a' out of bounds index '-1'"),
        ("template.spec.a[x]", "at path position 'template.spec.a' invalid index expression 'x'"),
        ("template.spec.a[]", "at path position 'template.spec.a' invalid index expression ''"),
        ("template.spec.a[00]", "at path position 'template.spec.a' invalid index expression '00'"),
        ("template.spec.a[٠]", "at path position 'template.spec.a' invalid index expression '٠'"),
        ("template.spec.a[0", "at path position 'template.spec.a' invalid array index '[0'"),
    ],
)
def test_unresolvable_path_error_contains_position(path: str, message: str) -> None:
    with pytest.raises(PathError) as raised:
        value_at(OBJECT, path)
    assert str(raised.value) == message


def test_very_long_index_is_an_error() -> None:
    with pytest.raises(PathError, match="invalid index expression"):
        value_at(OBJECT, f"template.spec.a[{'9' * 5000}]")


@pytest.mark.parametrize("path", ["template.spec.n", "template.spec.a", "template.spec.b.c-d"])
def test_object_at_rejects_other_values(path: str) -> None:
    with pytest.raises(PathError) as raised:
        object_at(OBJECT, path)
    assert str(raised.value) == f"at path position '{path}' non-map value"
