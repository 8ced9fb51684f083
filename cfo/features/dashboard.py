"""The dashboard of the operator's metrics server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cfo.features.contract import Context, OptionalRole
from cfo.runtime import Rule

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration


class Dashboard(OptionalRole):
    """The dashboard, which shows the objects of all enabled kinds, and their Events."""

    name = "dashboard"
    title = "the dashboard"
    probes = (Rule("", "events", "watch"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.metrics.dashboard

    def rules(self) -> Sequence[Rule]:
        from cfo.dashboard.in_cluster import RULES

        return RULES

    def setup(self, context: Context) -> None:
        from cfo.dashboard import in_cluster

        views = [view for kind in context.kinds for view in kind.views() if view.is_in_operator]
        in_cluster.setup(context.manager, views)
