"""Kueue, which admits AppWrappers."""

from __future__ import annotations

from typing import Final

from cfo.config import OperatorConfiguration
from cfo.features.contract import Feature, lazy
from cfo.runtime import Rule


def _enabled(configuration: OperatorConfiguration) -> bool:
    wrappers = configuration.appwrapper
    return wrappers.enabled and (wrappers.kueue_integration or bool(wrappers.slack_queue_name))


KUEUE: Final = Feature(
    name="kueue",
    title="Kueue",
    enabled=_enabled,
    rules=lazy("cfo.controllers.appwrapper:kueue_rules"),
    probe=Rule("kueue.x-k8s.io", "workloads/finalizers", "update"),
    checks={"kueue": lazy("cfo.console.doctor.components:kueue")},
)
