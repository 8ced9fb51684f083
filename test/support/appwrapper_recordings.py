"""What the Go operator was seen to answer about AppWrappers, and where this one answers something else on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from cfo.config import AppWrapperConfiguration
from cfo.config.durations import format_duration, parse_duration
from cfo.controllers.appwrapper.names import ANNOTATION_PREFIX
from cfo.runtime.objects import Object, annotations_of
from cfo.runtime.webhook.admission import UserInfo
from test.support.recordings import GOLDEN

NO_PODS = "spec.components: Invalid value: components contains no podspecs"
NO_THING = 'Invalid value: "Thing": no matches for kind "Thing" in version "example.com/v1"'

DIFFERENCES = {
    ("admission-bad-templates", "b2"): (
        "[spec.components[0].template: Invalid value: error inferring PodSets: "
        f"at path position 'template.spec.parallelism' non-int value three, {NO_PODS}]"
    ),
    ("admission-nested-other-version", "n3"): (
        f"[spec.components[0].template: Forbidden: Nested AppWrappers are forbidden, {NO_PODS}]"
    ),
    ("admission-podset-paths", "path0"): f"spec.components[0].template.kind: {NO_THING}",
    ("admission-podset-paths", "path1"): f"spec.components[0].template.kind: {NO_THING}",
    ("create-unknown-kind", "c"): f"spec.components[1].template.kind: {NO_THING}",
    ("name-of-64", "a" * 64): "metadata.name: Too long: may not be more than 63 bytes",
}
"""By scenario and name what is answered to the creation of an AppWrapper that the Go operator admitted, or refused with
fewer words. Each scenario is in docs/differences.md."""

WEBHOOK = 'admission webhook "vappwrapper.kb.io" denied the request: '
_VALUE = re.compile(r"(spec\.components(?:\[\d+\]\.template)?: Invalid value: )(?=[\[{])")


def recorded_denial(message: str) -> str:
    """What the Go webhook said, without the templates that it printed."""
    text = message.removeprefix(WEBHOOK)
    decoder, at = json.JSONDecoder(), 0
    while found := _VALUE.search(text, at):
        at = found.end()
        _, end = decoder.raw_decode(text, at)
        text = text[:at] + text[end:].removeprefix(": ")
    return text


def user_of(do: dict[str, Any]) -> UserInfo:
    """Who made a request: the recorder as admin, ``alice``, or somebody who was impersonated."""
    user: Any = do.get("user") or "admin"
    if user == "alice":
        return UserInfo("alice", "alice-uid", ("system:authenticated",))
    if user == "admin":
        return UserInfo("admin", "admin", ("system:masters",))
    return UserInfo(user["user"], user.get("uid", ""), (user["group"],))


def settings_of(recording: dict[str, Any]) -> AppWrapperConfiguration:
    """The configuration as the Go operator understood it: it reads nothing that is not under ``Config``."""
    return AppWrapperConfiguration.model_validate(recording["config"]["appwrapper"].get("Config") or {})


def actions(
    recording: dict[str, Any], op: str, kind: str = "AppWrapper"
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The steps that did ``op`` to objects of ``kind``, each with its result."""
    for step in recording["steps"]:
        do = step.get("do") or {}
        if do.get("op") == op and (do.get("object") or do)["kind"] == kind:
            yield do, step["result"]


CRDS = ("minimal_jobsets", "minimal_pytorchjobs", "ray.io_rayclusters", "ray.io_rayjobs")


_SHORTER = 0.2
"""What is left of each second of a recorded period."""


def shortened(text: str) -> str:
    """A recorded period, for a test to wait for: a fifth of what it was, if it is one of seconds."""
    try:
        period = parse_duration(text)
    except ValueError:
        return text
    seconds = period.total_seconds()
    return format_duration(period * _SHORTER) if 0 < seconds <= 60 else text


def prepared(obj: Object) -> Object:
    """A recorded object, as it can be created again, with shorter periods."""
    drop = {"uid", "creationTimestamp", "generation", "managedFields", "resourceVersion"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in drop}
    if annotations := annotations_of(obj):
        metadata["annotations"] = {
            key: shortened(value) if key.startswith(ANNOTATION_PREFIX) else value for key, value in annotations.items()
        }
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def recorded_crds() -> list[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [yaml.load((GOLDEN.parent / "crds" / f"{name}.yaml").read_text(), Loader=loader) for name in CRDS]
