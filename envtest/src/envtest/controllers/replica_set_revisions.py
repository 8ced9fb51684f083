"""The ReplicaSets that a Deployment creates: template, name, revision and annotations. All functions are pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from envtest.apimachinery.objects import Object, annotations_of, labels_of
from envtest.controllers.rollouts import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    creation_order,
    size_annotations,
)

__all__ = [
    "REVISION",
    "current_of",
    "next_revision",
    "replica_set_for",
    "revision_of",
    "template_hash",
    "updated_annotations",
]

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"

_NOT_COPIED: Final = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
}
_HISTORY_LENGTH: Final = 2000
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Object, collisions: int = 0) -> str:
    """Return a short hash of a pod template, valid in labels and names, in the alphabet that Kubernetes uses."""
    digest = hashlib.sha256(
        orjson.dumps([template, collisions], option=orjson.OPT_SORT_KEYS)
    ).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])


def _template_without_hash(template: Object) -> Object:
    """Return a copy of a template without the hash label of ReplicaSets."""
    copy: Object = orjson.loads(orjson.dumps(template))
    labels_of(copy).pop(HASH_LABEL, None)
    return copy


def current_of(deployment: Object, replica_sets: Sequence[Object]) -> Object | None:
    """Return the oldest ReplicaSet with the current template of the Deployment."""
    template = _template_without_hash(deployment["spec"].get("template") or {})
    for each in sorted(replica_sets, key=creation_order):
        if _template_without_hash(each["spec"].get("template") or {}) == template:
            return each
    return None


def revision_of(replica_set: Object) -> int:
    """Return the revision in the annotations of a ReplicaSet; 0 if there is none."""
    text = annotations_of(replica_set).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def next_revision(old: Sequence[Object]) -> int:
    """Return the revision of the current template, given the other ReplicaSets."""
    return max(map(revision_of, old), default=0) + 1


def _copied_annotations(deployment: Object) -> dict[str, str]:
    return {
        name: value for name, value in annotations_of(deployment).items() if name not in _NOT_COPIED
    }


def updated_annotations(deployment: Object, replica_set: Object, revision: int) -> dict[str, str]:
    """Return the annotations of an existing ReplicaSet of the current template, whose revision becomes ``revision``.

    Revisions that the template had before are kept in the annotation ``revision-history``.
    """
    annotations = {**annotations_of(replica_set), **_copied_annotations(deployment)}
    before = revision_of(replica_set)
    if before < revision:
        annotations[REVISION] = str(revision)
        if before:
            history = annotations.get(REVISION_HISTORY, "")
            entries = history.split(",") if history else []
            entries.append(str(before))
            while len(",".join(entries)) > _HISTORY_LENGTH:
                del entries[0]
            annotations[REVISION_HISTORY] = ",".join(entries)
    return annotations


def replica_set_for(
    deployment: Object, reference: Mapping[str, Any], replicas: int, revision: int
) -> Object:
    """Return the ReplicaSet of the current template, with ``replicas`` pods, controlled by ``reference``."""
    spec = deployment["spec"]
    metadata = deployment["metadata"]
    template = _template_without_hash(spec.get("template") or {})
    suffix = template_hash(
        template, int((deployment.get("status") or {}).get("collisionCount") or 0)
    )
    labels = {**labels_of(template), HASH_LABEL: suffix}
    template.setdefault("metadata", {})["labels"] = labels
    selector = orjson.loads(orjson.dumps(spec.get("selector") or {}))
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: suffix}
    return {
        "metadata": {
            "name": f"{metadata['name']}-{suffix}",
            "namespace": metadata["namespace"],
            "labels": dict(labels),
            "annotations": {
                **_copied_annotations(deployment),
                REVISION: str(revision),
                **size_annotations(spec),
            },
            "ownerReferences": [dict(reference)],
        },
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": template,
            "minReadySeconds": int(spec.get("minReadySeconds") or 0),
        },
    }
