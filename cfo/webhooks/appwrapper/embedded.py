"""The objects with a webhook of their own, RayClusters, that will be created from the components of an AppWrapper.

The API server calls the webhook of RayClusters only when a component is created, or when KubeRay creates the cluster of
a RayJob or RayService. A refusal at that time would leave an admitted AppWrapper that cannot run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.api.appwrapper import RAY_SPECS, PathError, value_at
from cfo.api.appwrapper.inference import EMBEDDED_KINDS
from cfo.runtime import FieldError, Object, gvk_of
from cfo.runtime.objects.field import Path
from cfo.webhooks.appwrapper.json_types import COMPONENTS

__all__ = ["PlannedObject", "planned_objects"]


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """A RayCluster that will be created from a component.

    ``template_path`` is the path of the component's template in the AppWrapper, ``spec_path`` that of the
    RayClusterSpec.
    """

    obj: Object
    template_path: Path
    spec_path: Path

    def located(self, error: FieldError) -> FieldError:
        """Return an error in :attr:`obj` with the path of the field in the AppWrapper."""
        field = str(error.field)
        if field == "spec" or field.startswith("spec."):
            return error._replace(field=f"{self.spec_path}{field[len('spec') :]}")
        return error._replace(field=str(self.template_path.child(field)))


def planned_objects(appwrapper: Object) -> Iterator[PlannedObject]:
    """Yield the RayClusters that will be created from ``appwrapper``, which passed validation."""
    for index, component in enumerate(appwrapper["spec"]["components"]):
        template: Object = component["template"]
        path = RAY_SPECS.get(gvk_of(template))
        if path is None:
            continue
        try:
            spec = value_at(template, path)
        except PathError:
            continue  # such as a RayJob that runs in an existing cluster
        at = COMPONENTS.index(index)
        kind, metadata = EMBEDDED_KINDS[gvk_of(template)], _metadata(template)
        if gvk_of(template) != kind:  # KubeRay generates the name
            metadata["generateName"] = f"{metadata.pop('name', '')}-"
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        yield PlannedObject(obj, at.child("template"), at.child(*path.split(".")))


def _metadata(template: Mapping[str, Any]) -> Object:
    """Return the metadata that a RayCluster gets from a component; KubeRay copies labels and annotations."""
    metadata: Mapping[str, Any] = template.get("metadata") or {}
    found = {name: metadata[name] for name in ("name", "generateName") if metadata.get(name)}
    for name in ("labels", "annotations"):
        values = metadata.get(name) or {}
        found[name] = {key: value for key, value in values.items() if isinstance(value, str)}
    return found
