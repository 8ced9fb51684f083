"""The Jobs of MiniClusters that are cached, and the fields of them that are."""

from __future__ import annotations

from typing import Final

from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.runtime.manager import SelectionKeywords

JOBS: Final[SelectionKeywords] = {
    "label_selector": MINICLUSTER_LABEL,
    # Anyone can create Jobs with the label, and nearly all of a Job is its template, of which one field is read.
    "fields": (
        "spec.activeDeadlineSeconds",
        "spec.backoffLimit",
        "spec.completions",
        "spec.parallelism",
        "spec.suspend",
        "spec.template.spec.subdomain",
        "status",
    ),
}
"""The selection of Jobs that all controllers of Flux share."""
