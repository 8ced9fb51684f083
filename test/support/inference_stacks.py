"""InferenceStacks for tests, and the samples and expected objects in the folder ``shared`` next to the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cfo.runtime.objects.unstructured import Object
from test.support.manifests import load_all

SHARED = Path(__file__).parents[3] / "shared" / "inferencestack"
needs_samples = pytest.mark.skipif(not SHARED.exists(), reason="no samples in shared")


def stack(
    applications: dict[str, Any] | None = None, name: str = "s", version: str = "v2", **spec: Any
) -> Object:
    """Return an InferenceStack named ``name`` in the namespace ``ns``; without a label if ``version`` is empty."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    if version:
        metadata["labels"] = {"operatorVersion": version}
    return {
        "apiVersion": "doublewordai.co/v1alpha1",
        "kind": "InferenceStack",
        "metadata": metadata,
        "spec": {"applications": applications or {}, **spec},
    }


def samples(name: str) -> list[Object]:
    """Return the stacks in a sample file, in the namespace ``default``."""
    found = [obj for obj in load_all((SHARED / "samples" / f"{name}.yaml").read_text()) if obj]
    for obj in found:
        obj["metadata"]["namespace"] = "default"
    return found


def expected_objects(name: str) -> list[Object]:
    """Return the objects that the original chart renders for a sample."""
    return [obj for obj in load_all((SHARED / "expected" / f"{name}.yaml").read_text()) if obj]


def vllm_stack(applications: dict[str, Any] | None = None, **spec: Any) -> Object:
    """Return an InferenceStack with the engine vllm, and one application if there are no ``applications``."""
    template = {"engine": "vllm", "readerConfig": {"modelName": "org/model"}}
    return stack(
        applications if applications is not None else {"a": {}},
        **{"applicationTemplate": template, **spec},
    )
