"""The dashboard of the operator's metrics server."""

from __future__ import annotations

from typing import Final

from cfo.features.contract import Context, Feature, lazy
from cfo.runtime import Rule


def _setup(context: Context) -> None:
    from cfo.dashboard import in_cluster

    in_cluster.setup(
        context.manager, [view for feature in context.enabled for view in feature.views()]
    )


DASHBOARD: Final = Feature(
    name="dashboard",
    title="the dashboard",
    enabled=lambda configuration: configuration.metrics.dashboard,
    rules=lazy("cfo.dashboard.in_cluster:rules"),
    probe=Rule("", "events", "watch"),
    setup=_setup,
)
