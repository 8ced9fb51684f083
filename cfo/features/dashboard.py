"""The dashboard of the operator's metrics server."""

from __future__ import annotations

from typing import Final

from cfo.features.contract import Context, Feature
from cfo.runtime import Rule

__all__ = ["DASHBOARD"]


def _setup(context: Context) -> None:
    from cfo.console.dashboard import in_cluster

    in_cluster.setup(context.manager, context.shown_kinds)


def _rules() -> list[Rule]:
    from cfo.console.dashboard import in_cluster

    return in_cluster.rules()


DASHBOARD: Final = Feature(
    name="dashboard",
    title="the dashboard",
    chart_comment="Permission to read Events, if metrics.dashboard is true in the configuration.",
    enabled=lambda configuration: configuration.metrics.dashboard,
    rules=_rules,
    probe=Rule("", "events", "watch"),
    setup=_setup,
)
