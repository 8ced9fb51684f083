"""Warn of labels with which a user seems to have meant that of a queue: without it, no queue admits an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.reading import mapping, path
from cfo.runtime import Object
from cfo.runtime.objects.field import Path
from cfo.runtime.process import printable

Place: TypeAlias = tuple[str, ...]
"""The path of a map in an object."""

LABELS: Final[Place] = ("metadata", "labels")
_ANNOTATIONS: Final[Place] = ("metadata", "annotations")

_NAMES: Final = frozenset({"kueue", "localqueue", "localqueuename", "queuename"})
"""What a label that names a queue can be called, without a domain, as letters only."""

_NAMES_OF_KUEUE: Final = _NAMES | {"queue"}
"""The same with a domain that contains the name of Kueue. Other schedulers have such labels, too."""

_POD_LABELS: Final = frozenset(
    {"kueue.x-k8s.io/local-queue-name", "kueue.x-k8s.io/cluster-queue-name"}
)
"""Labels with which Kueue marks the pods of what it has admitted."""

_SIMILARITY: Final = 0.83
"""From here on, a key is a misspelling of the label. Other labels of Kueue reach 0.78."""

_MAX_KEYS: Final = 100
"""The maximum number of keys of each map that are compared."""

_MAX_KEY: Final = 40
"""The maximum length of such a key; a longer one is not similar."""

_MAX_COMPARED: Final = 10
"""How many keys of an object are compared letter by letter, which takes 0.2 ms each. Users have one or two of them."""

_MAX_WARNINGS: Final = 3


def queue_label_warnings(
    obj: Object, old: Object | None = None, *, places: Sequence[Place] = (LABELS,)
) -> list[str]:
    """Return the warnings about ``obj``, whose fields have any types, except those that ``old`` also causes.

    ``places`` are the maps in which the label has an effect.
    """
    known = set(_warnings(old, places)) if old is not None else set()
    new = (warning for warning in _warnings(obj, places) if warning not in known)
    return list(islice(new, _MAX_WARNINGS))


def _warnings(obj: Object, places: Sequence[Place]) -> Iterator[str]:
    has_queue = any(mapping(path(obj, *place)).get(QUEUE_NAME_LABEL) for place in places)
    where = "" if LABELS in places else f" in {'.'.join(places[0])}"
    compared = 0
    for place in dict.fromkeys([*places, LABELS, _ANNOTATIONS]):
        for key in islice(mapping(path(obj, *place)), _MAX_KEYS):
            problem = ""
            means_queue = _means_queue(key, has_queue=has_queue)
            if means_queue is None and compared < _MAX_COMPARED:
                compared += 1
                means_queue = _is_similar(key)
            if means_queue:
                problem = f"names no queue; did you mean the label {QUEUE_NAME_LABEL}{where}?"
            elif key == QUEUE_NAME_LABEL and place == _ANNOTATIONS and not has_queue:
                problem = f"an annotation names no queue; use the label{where}"
            if problem:
                yield f"{Path(*place).key(printable(key, _MAX_KEY))}: {problem}"


def _means_queue(key: str, *, has_queue: bool) -> bool | None:
    """Return whether ``key`` means the label, but is another one; ``None`` if only a comparison can show that.

    If there ``has_queue``, only one that can mean nothing else.
    """
    lower = key.lower()
    if len(key) > _MAX_KEY or key == QUEUE_NAME_LABEL or "ueue" not in lower:
        return False
    if key in _POD_LABELS:
        return not has_queue
    domain, _, name = lower.rpartition("/")
    letters = "".join(filter(str.isalpha, name))
    if "kueue" in domain and letters in _NAMES_OF_KUEUE:
        return True
    if not domain and letters in _NAMES:
        return not has_queue
    return None


def _is_similar(key: str) -> bool:
    """Return whether ``key`` is nearly written as the label."""
    import difflib  # 0.2 MB, only for such labels

    return difflib.SequenceMatcher(None, QUEUE_NAME_LABEL, key.lower()).ratio() >= _SIMILARITY
