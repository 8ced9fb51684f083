"""The CRDs that are generated from the models, compared with upstream's: fields are only added."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.flux.models.minicluster import MiniCluster, minicluster_crd
from cfo.api.flux.models.queue import FluxJob, fluxjob_crd, fluxsetup_crd
from cfo.runtime import Object

RECORDED = Path(__file__).parents[5] / "shared/flux"
CURRENT = "current-0d75cef8/config/crd/bases/flux-framework.org_miniclusters.yaml"
EARLY = "early-4886937b/config/crd/bases/flux-framework.org_{}.yaml"


def schema_of(crd: Object) -> Object:
    """Return the schema of a CRD's only version."""
    schema: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def changes(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the paths in two schemas that differ, ``+`` before added ones; descriptions may differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if name == "description" and not isinstance(old.get(name), dict):
                continue
            at = (
                path
                if name in ("properties", "items", "additionalProperties")
                else f"{path}.{name}".lstrip(".")
            )
            if name not in old:
                yield f"+{at}"
            elif name not in new:
                yield f"-{at}"
            else:
                yield from changes(old[name], new[name], at)
    elif isinstance(old, list) and sorted(map(str, old)) == sorted(map(str, new)):
        return
    elif old != new:
        yield f"~{path}"


def recorded(file: str) -> Object:
    """Return a CRD of upstream."""
    path = RECORDED / file
    if not path.exists():
        pytest.skip("no recorded CRDs")
    crd: Object = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return crd


def test_minicluster_crd_only_adds_fields_to_upstreams() -> None:
    upstream, own = recorded(CURRENT), minicluster_crd()
    different = set(changes(schema_of(upstream), schema_of(own)))
    # quantities are bounded, because Python matches them
    bounded = {
        path
        for path in different
        if re.fullmatch(r"[+~].*(resources|limits|requests)\.(maxLength|pattern)", path)
    }
    assert different - bounded == {
        "+spec.suspend",
        "+spec.ttlSecondsAfterFinished",
        "+status.completionTime",
        "+status.exitCode",
        "+status.observedGeneration",
        "+status.ready",
        "+status.startTime",
    }
    assert own["metadata"]["name"] == upstream["metadata"]["name"]
    assert own["spec"]["names"] == upstream["spec"]["names"]
    assert (
        own["spec"]["versions"][0]["subresources"]
        == upstream["spec"]["versions"][0]["subresources"]
    )


@pytest.mark.parametrize(
    ("plural", "crd", "expected"),
    [
        (
            "fluxjobs",
            fluxjob_crd(),
            {"-spec.image.default", "-spec.required", "-spec.size.default", "+spec.size.minimum"},
        ),
        (
            "fluxsetups",
            fluxsetup_crd(),
            {
                "+spec.max-size.minimum",
                "+spec.queueingStrategy.enum",
                "-status.usedResources.default",
            },
        ),
    ],
)
def test_fields_of_early_crds_change_only_where_needed(
    plural: str, crd: Object, expected: set[str]
) -> None:
    early = recorded(EARLY.format(plural))
    parts = schema_of(early)["properties"]
    known = [f"{part}.{name}." for part in ("spec", "status") for name in parts[part]["properties"]]
    new = ("+spec.mini-cluster.", "+status.conditions.")
    found = {
        change
        for change in changes(schema_of(early), schema_of(crd))
        if change[0] != "+" or (change[1:].startswith(tuple(known)) and not change.startswith(new))
    }
    assert found == expected
    assert crd["spec"]["names"] == early["spec"]["names"]


def defaults(schema: Any) -> Iterator[str]:
    """Yield each default in a schema."""
    if isinstance(schema, dict):
        if "default" in schema and not isinstance(schema["default"], dict):
            yield schema["default"]
        for child in schema.values():
            yield from defaults(child)


def test_template_of_fluxjob_has_all_fields_of_minicluster_but_no_default() -> None:
    template = schema_of(fluxjob_crd())["properties"]["spec"]["properties"]["template"]
    spec = schema_of(minicluster_crd())["properties"]["spec"]
    assert set(template["properties"]) == set(spec["properties"])
    assert list(defaults(spec))
    assert not list(defaults(template))
    assert "required" not in template


def test_unknown_fields_are_preserved_by_models() -> None:
    wire = {
        "spec": {"containers": [{"image": "a", "pullAlways": True, "new": 1}], "later": {"a": 1}}
    }
    parsed = MiniCluster.model_validate(wire).model_dump(by_alias=True, exclude_unset=True)
    assert parsed == wire
    job = {
        "spec": {
            "size": 2,
            "workingDir": "/data",
            "template": {"containers": [], "flux": {"logLevel": 7}},
        }
    }
    assert FluxJob.model_validate(job).model_dump(by_alias=True, exclude_unset=True) == job
