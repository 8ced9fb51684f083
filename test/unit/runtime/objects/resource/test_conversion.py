"""Conversions between three versions of a kind, each through the hub."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.runtime import APIModel, CustomResource
from cfo.runtime.objects import Conversions, InvalidResource, SchemaError

GROUP = "example.com"


class Seconds(APIModel):
    seconds: int


class Minutes(APIModel):
    minutes: int


class Text(APIModel):
    duration: str


class TimerAlpha(CustomResource, group=GROUP, version="v1alpha1", kind="Timer", storage=False):
    spec: Text


class TimerBeta(CustomResource, group=GROUP, version="v1beta1", kind="Timer", storage=False):
    spec: Minutes


class Timer(CustomResource, group=GROUP, version="v1"):
    spec: Seconds


CONVERSIONS = Conversions(Timer)
CONVERSIONS.add(
    TimerAlpha,
    to_hub=lambda old: Timer(spec=Seconds(seconds=int(old.spec.duration.removesuffix("s")))),
    from_hub=lambda new: TimerAlpha(spec=Text(duration=f"{new.spec.seconds}s")),
)
CONVERSIONS.add(
    TimerBeta,
    to_hub=lambda old: Timer(spec=Seconds(seconds=60 * old.spec.minutes)),
    from_hub=lambda new: TimerBeta(spec=Minutes(minutes=new.spec.seconds // 60)),
)
SPECS: dict[str, dict[str, Any]] = {
    "v1alpha1": {"duration": "120s"},
    "v1beta1": {"minutes": 2},
    "v1": {"seconds": 120},
}


def timer(version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "a", "uid": "u", "labels": {"a": "b"}, "unknown": [1]}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Timer", "metadata": metadata, "spec": spec or SPECS[version]}


@pytest.mark.parametrize("source", SPECS)
@pytest.mark.parametrize("target", SPECS)
def test_each_version_is_converted_to_each_other_with_its_metadata(source: str, target: str) -> None:
    assert CONVERSIONS.convert(timer(source), f"{GROUP}/{target}") == timer(target)


def test_what_cannot_be_converted_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Timer: no conversion is registered for example\.com/v2"):
        CONVERSIONS.convert(timer("v1"), f"{GROUP}/v2")
    with pytest.raises(ValueError, match="invalid literal"):
        CONVERSIONS.convert(timer("v1alpha1", duration="soon"), f"{GROUP}/v1")
    with pytest.raises(InvalidResource, match=r"spec\.minutes: Required value"):
        CONVERSIONS.convert(timer("v1beta1", other=1), f"{GROUP}/v1")
    with pytest.raises(SchemaError, match="must be another version"):
        CONVERSIONS.add(TimerBeta, to_hub=lambda old: Timer(spec=Seconds(seconds=0)), from_hub=lambda new: new)  # type: ignore[arg-type, return-value]
