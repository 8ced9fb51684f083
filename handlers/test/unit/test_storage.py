"""What is stored of an object is as it was before its handlers ran."""

from __future__ import annotations

from typing import Any

import pytest

from cfo_handlers import AnnotationsDiffBaseStorage, StatusDiffBaseStorage


@pytest.mark.parametrize("storage", [AnnotationsDiffBaseStorage(), StatusDiffBaseStorage()])
def test_handlers_that_change_a_part_of_the_body_change_no_configuration(storage: Any) -> None:
    """A handler can build a child from a part of the body, such as the template of its pods."""
    body: dict[str, Any] = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"template": {"spec": {"containers": [1, 2]}}},
    }
    essence = storage.build(body=body)
    body["spec"]["template"].setdefault("metadata", {})["name"] = "child"
    body["spec"]["template"]["spec"]["containers"].append(3)
    body["metadata"]["labels"]["a"] = "changed"
    assert essence == {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"template": {"spec": {"containers": [1, 2]}}},
    }
