"""Kueue, which admits AppWrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cfo.config import OperatorConfiguration
from cfo.features.contract import Feature
from cfo.runtime import Rule

if TYPE_CHECKING:
    from cfo.console.doctor.components import Check

__all__ = ["KUEUE"]


def _enabled(configuration: OperatorConfiguration) -> bool:
    wrappers = configuration.appwrapper
    return wrappers.enabled and (wrappers.kueue_integration or bool(wrappers.slack_queue_name))


def _rules() -> list[Rule]:
    from cfo.controllers import appwrapper

    return appwrapper.kueue_rules()


def _checks() -> dict[str, Check]:
    from cfo.console.doctor.kueue import kueue

    return {"kueue": kueue}


KUEUE: Final = Feature(
    name="kueue",
    title="Kueue",
    enabled=_enabled,
    rules=_rules,
    probe=Rule("kueue.x-k8s.io", "workloads/finalizers", "update"),
    checks=_checks,
)
