"""The list of the public API has every public name, and changes with a signature."""

from __future__ import annotations

import cfo.runtime
from hack.generate import public_api


def test_list_has_every_public_name_with_its_signature() -> None:
    lines = list(public_api.lines())
    names = {
        line.partition("(")[0].partition(":")[0].partition(" = ")[0].split()[-1].split(".")[-1]
        for line in lines
    }
    modules = {"field", "logs"}
    assert set(cfo.runtime.__all__) - modules <= names
    is_deleting = (
        "def objects.unstructured.is_deleting(obj: Mapping[str, Any] | TypedObject) -> bool"
    )
    assert is_deleting in lines
    assert "def objects.field.required(path: Path | str, detail: str='') -> FieldError" in lines
    assert any(
        line.startswith("async def client.client.Client.delete(self, kind: ObjectKind[Any], ")
        for line in lines
    )
    assert not [line for line in lines if "._" in line.replace(".__", "")]
