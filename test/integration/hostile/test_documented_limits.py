"""Tests that the limits in docs/security-reference.md are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfo.api.appwrapper.podsets import MAX_POD_SET_BYTES, MAX_POD_SETS
from cfo.api.flux.validation.containers import MAX_CONTAINERS
from cfo.api.flux.validation.minicluster import MAX_BURSTED_CLUSTERS, MAX_SCRIPTS, MAX_SIZE
from cfo.api.flux.validation.syntax import MAX_VALUES
from cfo.api.inferencestack.validation.fields import MAX_APPLICATIONS, MAX_DEPTH, MAX_WEIGHT
from cfo.api.reading import MAX_SPEC_VALUES
from cfo.controllers.inferencestack import hosts
from cfo.controllers.raycluster.ca import MAX_CERTIFICATE_BYTES
from cfo.controllers.raycluster.head_pods import MAX_HEADS
from cfo.controllers.raycluster.watches import HEAD_PODS, LABELED
from cfo.runtime.cache.selectors import MAX_BYTES, MAX_OBJECTS
from cfo.runtime.objects.field import MAX_ERRORS
from cfo.runtime.objects.parsers import MAX_ITEMS, MAX_LENGTH
from cfo.runtime.pki import MAX_REQUEST_BYTES
from cfo.runtime.pki.private_keys import MAX_PRIVATE_KEY_BYTES
from cfo.runtime.process import endpoint
from cfo.runtime.webhook import request_bodies, review, server
from cfo.webhooks import turns
from cfo.webhooks.appwrapper.validation import MAX_COMPONENTS
from cfo.webhooks.raycluster.json_types import MAX_ENTRIES, MAX_LIST, MAX_WORKER_GROUPS

DOCUMENT = " ".join(
    Path(__file__).parents[3].joinpath("docs/security-reference.md").read_text().split()
)


@pytest.mark.parametrize(
    "claim",
    [
        f"| AppWrapper | {MAX_COMPONENTS} components",
        f"; {MAX_POD_SETS} pod sets; {MAX_POD_SET_BYTES >> 10} KiB of declared pod sets",
        f"| RayCluster | {MAX_WORKER_GROUPS} worker groups",
        f"| pod template of a RayCluster | {MAX_LIST:,} entries",
        f"| RayCluster, with the injected entries | {MAX_ENTRIES:,} entries",
        f"| spec of a RayCluster or AppWrapper | {MAX_SPEC_VALUES:,} values, at all levels |",
        f"| rejection | {MAX_ERRORS} errors",
        f"| quantity, duration, time or number | {MAX_LENGTH} characters",
        f"| annotations of an AppWrapper | {MAX_ITEMS} exit codes",
        f"| InferenceStack | {MAX_APPLICATIONS} applications; {MAX_WEIGHT:,} values",
        f"; {MAX_DEPTH} levels",
        f"not written if more than {hosts._MAX_SHARED} objects of its namespace have it",
        f"| MiniCluster, template of a FluxJob | {MAX_CONTAINERS} containers",
        f"; {MAX_BURSTED_CLUSTERS} bursted clusters; {MAX_SCRIPTS >> 10} KiB of commands and variables, as quoted",
        f" in the scripts of all containers; {MAX_SIZE:,} pods",
        f"| spec of a MiniCluster, FluxJob or FluxSetup | {MAX_VALUES:,} values",
        f"| object in a review | {review.MAX_VALUES:,} values",
        f"without managedFields; {review.MAX_OBJECT_BYTES >> 10} KiB, so that",
        f"| request body | {request_bodies.MAX_BODY >> 20} MiB, received within",
        f" MiB, received within {request_bodies.READ_TIMEOUT:g} seconds |",
        f"| reviews in flight | {server.MAX_REVIEWS}; {server.MAX_REVIEWS_OF_WEBHOOK} of one webhook, over 16 KiB (16",
        f"| questions about users | {turns.MAX_REQUESTS} at once; namespaces take turns |",
        f"| bodies that are being received | {request_bodies.MAX_BYTES >> 20} MiB together",
        f"| nesting of an object | {review.MAX_DEPTH} levels",
        f"| connections of the webhook server | {server.MAX_CONNECTIONS};",
        f"| connections of the metrics and health servers | {endpoint.MAX_CONNECTIONS} each",
        f"| `ca.key` | {MAX_PRIVATE_KEY_BYTES >> 10} KiB;",
        f"| `ca.crt` | {MAX_CERTIFICATE_BYTES >> 10} KiB;",
        f"| size | at most {MAX_REQUEST_BYTES >> 10} KiB and 64 names",
        f"ServiceAccounts), and routes | {LABELED['max_bytes'] >> 10} KiB",
        f"pods and Deployments with the labels of stacks | {HEAD_PODS['max_bytes'] >> 10} KiB",
        f"| all others | {MAX_BYTES >> 20} MiB, as much as API servers accept",
        f"more than {MAX_OBJECTS:,} objects of one kind and namespace",
        f"the RayCluster controls more than {MAX_HEADS} of them",
    ],
)
def test_limit_in_the_security_reference_is_that_of_the_code(claim: str) -> None:
    assert claim in DOCUMENT
