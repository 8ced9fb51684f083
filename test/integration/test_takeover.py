"""The switch from the Go operator: what it made (recorded) is taken over, and nothing is deleted or made anew."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cfo.api.raycluster.naming import FIELD_MANAGER
from cfo.controllers.raycluster import ca
from cfo.runtime.objects import Object, gvk_of, key_of, name_of
from test.integration.test_raycluster_golden import CONFIGURATIONS, as_persisted, definitions
from test.integration.world import World, kuberay, operating, world
from test.recordings import RAYCLUSTER, load, observations

pytestmark = pytest.mark.skipif(not RAYCLUSTER.is_dir(), reason="no recordings beside the repository")

ADOPTING_WRITES = {"NetworkPolicy": 1, "RayCluster": 1}
"""Once at the most: ``policyTypes`` is set; the finalizer goes where there is no OAuth. docs/operations.md says so."""


def projected(obj: Any, fields: dict[str, Any]) -> Any:
    """The part of ``obj`` that a managedFields entry names: what its manager has applied."""
    children = {key: value for key, value in fields.items() if key != "."}
    if not children or obj is None:
        return obj
    if isinstance(obj, list):
        kept = []
        for key, value in children.items():
            wanted = json.loads(key[2:])
            for item in obj:
                if key.startswith("v:") and item == wanted:
                    kept.append(item)
                elif key.startswith("k:") and all(item.get(name, wanted[name]) == wanted[name] for name in wanted):
                    kept.append(projected(item, value))
        return kept
    return {key[2:]: projected(obj[key[2:]], value) for key, value in children.items() if key[2:] in obj}


def secret_data(described: dict[str, Any]) -> dict[str, str]:
    """Data in the place of that which the recording only describes."""
    if "ca.crt" in described:
        authority = ca.create("rsa", now=datetime.now(UTC) - timedelta(days=1))
        return {key: b64encode(value).decode() for key, value in authority.data().items()}
    return {key: b64encode(b"0123456789012345678=").decode() for key in described}


async def recreate(here: World, recorded: list[Object], namespace: str) -> list[Object]:
    """Makes what the Go operator left, with the field managers that it used."""
    (cluster,) = [obj for obj in recorded if obj["kind"] == "RayCluster"]
    made = [await here.client.create(as_persisted(cluster))]
    applier = here.client.with_field_manager(FIELD_MANAGER)
    for obj in recorded:
        entries = [entry for entry in obj["metadata"].get("managedFields", ()) if entry["manager"] == FIELD_MANAGER]
        if obj["kind"] == "RayCluster" or not entries:
            continue
        applied = projected(obj, entries[0]["fieldsV1"])
        if obj["kind"] == "Secret":
            applied["data"] = secret_data(obj["data"])
        applied |= {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        applied.setdefault("metadata", {})["name"] = name_of(obj)
        if "namespace" in obj["metadata"]:
            applied["metadata"]["namespace"] = namespace
        for reference in obj["metadata"].get("ownerReferences", ()):
            applied["metadata"]["ownerReferences"] = [{**reference, "uid": made[0]["metadata"]["uid"]}]
        made.append(await applier.apply(applied))
    return made


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
async def test_what_the_go_operator_made_is_taken_over(configuration: str) -> None:
    recording = load(f"{configuration}/kuberay-sample")
    _, recorded = next(iter(observations(recording)))
    settings: dict[str, Any] = recording["config"]
    async with world(*definitions(openshift=settings["openshift"])) as here:
        namespace = await here.namespace(recording["namespace"])
        made = await recreate(here, recorded, namespace)
        assert len(made) > 1
        async with operating(here, kuberay(**settings["kuberay"])):
            await here.quiet()
            requests = Counter(here.requests())
        assert [verb for verb, _ in requests if verb in ("delete", "deletecollection")] == []
        assert [resource for verb, resource in requests if verb == "create" and "reviews" not in resource] == []
        for before in made:
            after = await here.client.get(gvk_of(before), key_of(before))
            assert after is not None, f"{before['kind']} {name_of(before)} is gone"
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            if before["kind"] not in ADOPTING_WRITES:
                assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], before
        kinds = Counter(obj["kind"] for obj in made)
        written = {verb_resource: count for verb_resource, count in requests.items() if verb_resource[0] in _WRITES}
        for (_, resource), count in written.items():
            assert count <= sum(
                number * ADOPTING_WRITES.get(kind, 0)
                for kind, number in kinds.items()
                if resource.split(".")[0].rstrip("s") in (kind.lower(), kind.lower().replace("policy", "policie"))
            ), written
        async with operating(here, kuberay(**settings["kuberay"])):  # and a second start writes nothing at all
            await here.quiet()
            assert [each for each in here.requests() if each[0] in _WRITES] == []


_WRITES = ("create", "update", "patch", "apply", "delete")
