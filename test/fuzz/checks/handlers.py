"""The storages of handlers in kopf's style: any user can write the annotations and the status that they read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from cfo_handlers.bodies import Body, Patch
from cfo_handlers.diffs import compute_diff
from cfo_handlers.progress import HandlerState, Outcome
from cfo_handlers.storage import (
    AnnotationsDiffBaseStorage,
    AnnotationsProgressStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    ProgressStorage,
    SmartProgressStorage,
    StatusDiffBaseStorage,
    StatusProgressStorage,
)
from test.fuzz.bounds import assert_small, limited_time
from test.fuzz.mutations import HOSTILE
from test.fuzz.seeds import Corpus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ("create_fn", "update_fn/sub", "x" * 200, "a<b>/c")
MAX_ANNOTATIONS = 256 * 1024
"""What the API server permits for all annotations of an object."""

RECORD = {
    "started": "2026-01-01T00:00:00.000000",
    "delayed": "2026-01-01T00:00:00.000000",
    "stopped": None,
    "purpose": "create",
    "retries": 1,
    "success": False,
    "failure": False,
    "message": "m",
    "subrefs": ["create_fn/a"],
}
ESSENCE = {"spec": {"a": 1, "b": [1, {"c": "d"}]}, "metadata": {"labels": {"a": "b"}}}
BODY = {
    "apiVersion": "a/v1",
    "kind": "K",
    "metadata": {"name": "x", "namespace": "ns", "uid": "u"},
    **ESSENCE,
}
RECORDS = Corpus([RECORD])
ESSENCES = Corpus([ESSENCE])
BODIES = Corpus([BODY])
PROGRESS: tuple[ProgressStorage, ...] = (
    AnnotationsProgressStorage(),
    AnnotationsProgressStorage(prefix="example.com", verbose=True),
    StatusProgressStorage(),
    SmartProgressStorage(),
)
DIFF_BASES: tuple[DiffBaseStorage, ...] = (
    AnnotationsDiffBaseStorage(ignored_fields=["spec.a"]),
    StatusDiffBaseStorage(),
    MultiDiffBaseStorage(
        [AnnotationsDiffBaseStorage(prefix="example.com"), StatusDiffBaseStorage(name="x")]
    ),
)


def encodings(values: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """Return texts of annotations: JSON of ``values``, cut somewhere, or anything."""
    texts = values.map(json.dumps)
    return (
        texts
        | st.tuples(texts, st.integers(0, 99)).map(lambda it: it[0][: it[1]])
        | st.sampled_from(HOSTILE)
    )


def check_progress(body: Any, text: str, nested: Any = None, key: str = KEYS[0]) -> None:
    for storage in PROGRESS:
        raw = _stored(body)
        patch = Patch()
        storage.store(key=key, record=RECORD, body=Body(raw), patch=patch)
        for name in patch.get("metadata", {}).get("annotations", {}):
            raw["metadata"].setdefault("annotations", {})[name] = text
        raw["status"] = {"kopf": {"progress": {key: nested}}}
        with limited_time():
            record = storage.fetch(key=key, body=Body(raw))
            state = HandlerState(started=NOW) if record is None else HandlerState.parse(record, NOW)
            for outcome in (
                Outcome(final=False, delay=1e300),
                Outcome(final=True, exception=ValueError(text)),
            ):
                state = state.after(outcome, NOW)
                assert 0 <= state.delay(NOW) < 1e10
                patch = Patch()
                storage.store(key=key, record=state.record(), body=Body(raw), patch=patch)
                assert_small(patch, MAX_ANNOTATIONS)
            storage.purge(key=key, body=Body(raw), patch=patch)
            storage.clear(essence=dict(raw))


def check_diff_base(body: Any, text: str) -> None:
    for storage in DIFF_BASES:
        raw = _stored(body)
        with limited_time():
            patch = Patch()
            storage.store(body=Body(raw), patch=patch, essence=storage.build(body=Body(raw)))
            assert_small(patch.get("metadata", {}), MAX_ANNOTATIONS)
            for name in patch.get("metadata", {}).get("annotations", {}):
                raw["metadata"].setdefault("annotations", {})[name] = text
            raw["status"] = {name: {"last-handled-configuration": text} for name in ("kopf", "x")}
            old = storage.fetch(body=Body(raw))
            essence = storage.build(body=Body(raw))
            storage.is_stored_digest(body=Body(raw), essence=essence)
            if old is not None:
                assert len(compute_diff(old, essence)) <= 1_000_000 // 8
        assert essence.keys().isdisjoint({"status", "kind", "apiVersion"})


def _stored(body: Any) -> dict[str, Any]:
    """Return ``body`` with metadata as an API server returns them."""
    raw: dict[str, Any] = json.loads(json.dumps(body))
    metadata = raw.get("metadata") if isinstance(raw.get("metadata"), dict) else {}
    maps = {
        name: {key: value for key, value in found.items() if isinstance(value, str)}
        for name in ("labels", "annotations")
        if isinstance(found := metadata.get(name), dict)  # type: ignore[union-attr]
    }
    return {**raw, "metadata": {"name": "x", "namespace": "ns", "uid": "u", **maps}}
