"""What the RayCluster controllers watch: predicates, selections, and the lookups that map events to RayClusters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from cfo.api.raycluster.addresses import route_refusal
from cfo.api.raycluster.cluster import HEAD_LABELS
from cfo.api.raycluster.names import CLUSTER_LABEL, label_value
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.runtime import (
    AnnotationChanged,
    Entry,
    Event,
    GenerationChanged,
    Informer,
    LabelChanged,
    NamespacedName,
    Predicate,
    Reader,
    on_update,
    or_,
)
from cfo.runtime.manager import SelectionKeywords

LABELED: SelectionKeywords = {"label_selector": CLUSTER_LABEL, "max_bytes": MAX_CACHED_BYTES}
"""The selection of objects that have the label of a RayCluster."""

HEAD_PODS: SelectionKeywords = {"label_selector": HEAD_LABELS, "max_bytes": 4 * MAX_CACHED_BYTES}
"""The selection of head pods; a pod contains what users write to its template."""

_PARTS = [(name, msgspec.Raw, msgspec.Raw()) for name in ("head", "conditions")]
_status = field_reader("status", kind=msgspec.defstruct("Status", _PARTS, gc=False), default=None)
_head_service = field_reader("status", "head", "serviceName", kind=str, default="")
_ingresses = field_reader("status", "ingress", kind=list[Any], default=[])
_parents = field_reader("status", "parents", kind=list[Any], default=[])

CLUSTER_CHANGED: Predicate = or_(GenerationChanged(), LabelChanged(), AnnotationChanged())
"""The spec, labels or annotations of a RayCluster changed, or its deletion began (which raises the generation)."""

STATUS_CHANGED: Predicate = on_update(lambda old, new: _status(old) != _status(new))
"""The JSON changed of what other predicates decode of the status: most updates end here."""

HEAD_SERVICE_CHANGED: Predicate = on_update(
    lambda old, new: _head_service(old) != _head_service(new)
)
"""KubeRay reports another name for the head's Service in the status of a RayCluster."""

FINALIZERS_CHANGED: Predicate = on_update(
    lambda old, new: old.meta.finalizers != new.meta.finalizers
)

CHILD_CHANGED: Predicate = or_(
    GenerationChanged(),
    AnnotationChanged(),
    LabelChanged(),
    on_update(lambda old, new: old.meta.owner_references != new.meta.owner_references),
)
"""A field of a child other than its status changed; other controllers write the status."""


def in_first_list(event: Event) -> bool:
    """Return whether an object was in the first list of its kind."""
    return event.initial


CREATED_OR_DELETED: Predicate = on_update(lambda _old, _new: False)
"""An object was created or deleted."""

ROUTE_CHANGED: Predicate = or_(
    CHILD_CHANGED, on_update(lambda old, new: _parents(old) != _parents(new))
)
"""A field of a route of the Gateway API changed, or what a Gateway reports about it."""

OPENSHIFT_ROUTE_CHANGED: Predicate = or_(
    CHILD_CHANGED,
    on_update(lambda old, new: route_refusal(_ingresses(old)) != route_refusal(_ingresses(new))),
)
"""A field of an OpenShift Route changed, or why no router serves it."""

_LABEL = "label"


def add_indexes(clusters: Informer) -> None:
    """Add the index that :func:`clusters_with_label` reads to the informer of RayClusters."""
    clusters.add_index(_LABEL, _shortened_label, left_out=True)


def _shortened_label(entry: Entry) -> Iterable[str]:
    """Yield the label value of a cluster whose name is too long for a label; other clusters are found by name."""
    label = label_value(entry.name)
    return (f"{entry.namespace}/{label}",) if label != entry.name else ()


def clusters_with_label(clusters: Reader, namespace: str, label: str) -> Collection[NamespacedName]:
    """Return the clusters in ``namespace`` whose children and pods have ``label`` as the cluster's name.

    Those that the cache leaves out are among them, up to 1,000 of a namespace.
    """
    key = NamespacedName(namespace, label)
    same_name = [key] if clusters.may_exist(key) and label_value(label) == label else []
    return [*same_name, *clusters.keys(_LABEL, f"{namespace}/{label}")]
