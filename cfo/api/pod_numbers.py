"""Warnings about numbers of pods that no cluster of usual size can run, such as a size with too many zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

MAX_NODES: Final = 5_000
"""The number of nodes up to which Kubernetes supports a cluster. Workers of Flux and Ray usually have a node each."""


def pod_number_warnings(path: str, number: Any) -> Iterator[str]:
    """Yield a warning if the ``number`` of pods in the field ``path`` exceeds :data:`MAX_NODES`.

    A value of another type than an integer is ignored.
    """
    if isinstance(number, int) and number > MAX_NODES:
        yield (
            f"{path}: {number}: Kubernetes supports clusters of at most {MAX_NODES} nodes; correct the number if it is "
            "a mistake"
        )
