"""Flux: whatever an API server stores, each object is validated, rendered, counted, and gets a status."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from test.fuzz.checks.flux import (
    CLUSTERS,
    CONDITIONS,
    CORPORA,
    JOBS,
    REVIEWERS,
    SETUPS,
    check_flux_job,
    check_minicluster,
)
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.fuzz.stored_objects import as_stored


@fuzz(0.06, mutated(CLUSTERS, 4), CONDITIONS, st.booleans())
def test_each_stored_minicluster_is_rendered_or_invalid(
    cluster: Any, true: list[str], has_job: bool
) -> None:
    check_minicluster(cluster, true, has_job=has_job)


@fuzz(0.06, mutated(JOBS, 4), CONDITIONS, mutated(SETUPS, 1))
def test_each_stored_flux_job_is_counted_and_has_a_next_step(
    job: Any, true: list[str], setup: Any
) -> None:
    check_flux_job(job, true, setup)


@fuzz(0.08, st.sampled_from(list(REVIEWERS)), st.data())
def test_each_creation_and_update_is_answered(kind: Any, data: st.DataObject) -> None:
    """The API server calls a validating webhook only for objects that are valid according to the CRD."""
    old = as_stored(data.draw(mutated(CORPORA[kind])))
    if old is None:
        return
    REVIEWERS[kind].admit(old)
    new = as_stored(data.draw(mutated(CORPORA[kind], only=old)))
    if new is not None:
        REVIEWERS[kind].admit(new, old)
