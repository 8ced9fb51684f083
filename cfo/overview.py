"""What each RayCluster got, as a table that follows what happens.

The table is made from informers: an event marks it as stale, and it is drawn anew when things are quiet for a moment.
On a terminal it stays in place; elsewhere it is printed whenever every cluster has settled in a new way.
"""

from __future__ import annotations

import anyio
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import INGRESS, NETWORK_POLICY, RAY_CLUSTER, SECRET
from cfo.api.raycluster.naming import CLUSTER_LABEL, names_of
from cfo.runtime.cache.informer import Event, Informer
from cfo.runtime.events import EVENT
from cfo.runtime.manager import Manager
from cfo.runtime.objects import GVK, NamespacedName, Object, key_of, name_of, namespace_of, uid_of

__all__ = ["Overview"]

_QUIET = 0.1
"""Seconds without a further event before the table is drawn."""

_CHILDREN = (INGRESS, NETWORK_POLICY, SECRET)


class Overview:
    """Follows the RayClusters that ``manager``'s cache sees, and what is made for them."""

    def __init__(self, manager: Manager, console: Console) -> None:
        self._console = console
        self._changed = anyio.Event()
        cache = manager.cache
        self._clusters = cache.informer(RAY_CLUSTER)
        self._children: dict[GVK, Informer] = {
            gvk: cache.informer(gvk, label_selector=CLUSTER_LABEL) for gvk in _CHILDREN
        }
        self._events = cache.informer(EVENT)
        for informer in (self._clusters, self._events, *self._children.values()):
            informer.add_handler(self._on_event)

    def _on_event(self, event: Event) -> None:
        self._changed.set()

    def missing(self, key: NamespacedName) -> list[str]:
        """What the RayCluster ``key`` should have and has not: itself, or objects by kind and name."""
        cluster = self._clusters.reader.get(key)
        if cluster is None:
            return [f"RayCluster {key}"]
        return [
            f"{gvk.kind} {name}"
            for gvk, name in _expected(cluster)
            if not self._children[gvk].reader.contains(NamespacedName(key.namespace, name))
        ]

    async def settled(self, keys: list[NamespacedName]) -> None:
        """Returns when none of ``keys`` misses anything."""
        while any(self.missing(key) for key in keys):
            await self._next_change()

    async def run(self) -> None:
        """Shows the table until cancelled."""
        if not self._console.is_terminal:
            await self._print_when_settled()
        with Live(self.table(), console=self._console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                await self._next_change()
                live.update(self.table(), refresh=True)

    async def _print_when_settled(self) -> None:
        shown: list[tuple[str, ...]] = []
        while True:
            rows = self._rows()
            if rows != shown and not any(self.missing(key_of(cluster)) for cluster in self._clusters.reader.list()):
                self._console.print(self.table())
                shown = rows
            await self._next_change()

    async def _next_change(self) -> None:
        """Waits for a change, then until things are quiet."""
        await self._changed.wait()
        while self._changed.is_set():
            self._changed = anyio.Event()
            with anyio.move_on_after(_QUIET):
                await self._changed.wait()

    def table(self) -> Table:
        """The table as things are now."""
        table = Table(title="RayClusters", title_justify="left", header_style="bold", show_lines=True)
        for column in ("RayCluster", "state", "made for it", "events"):
            table.add_column(column, overflow="fold")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> list[tuple[str, ...]]:
        clusters = sorted(self._clusters.reader.list(), key=key_of)
        return [
            (
                str(key_of(cluster)),
                self._state(cluster),
                "\n".join(self._made_for(cluster)),
                "\n".join(self._events_about(cluster)),
            )
            for cluster in clusters
        ]

    def _state(self, cluster: Object) -> str:
        missing = self.missing(key_of(cluster))
        if missing:
            return "waits for " + ", ".join(missing)
        return "suspended" if is_suspended(cluster) else "settled"

    def _made_for(self, cluster: Object) -> list[str]:
        uid = uid_of(cluster)
        lines = []
        for gvk, informer in self._children.items():
            for child in informer.reader.list(namespace=namespace_of(cluster)):
                owners = child["metadata"].get("ownerReferences") or []
                if any(owner["uid"] == uid for owner in owners):
                    hosts = [rule["host"] for rule in child.get("spec", {}).get("rules", []) if rule.get("host")]
                    lines.append(f"{gvk.kind} {name_of(child)}" + "".join(f"\n  {host}" for host in hosts))
        return sorted(lines)

    def _events_about(self, cluster: Object) -> list[str]:
        uid = uid_of(cluster)
        return sorted(
            {
                f"{event.get('type')} {event.get('reason')}: {event.get('note')}"
                for event in self._events.reader.list(namespace=namespace_of(cluster))
                if (event.get("regarding") or {}).get("uid") == uid
            }
        )


def _expected(cluster: Object) -> list[tuple[GVK, str]]:
    """What a cluster gets on vanilla Kubernetes with OAuth off and mTLS on, as the embedded configuration has it."""
    if is_suspended(cluster):
        return []
    names = names_of(cluster)
    return [
        (INGRESS, names.dashboard),
        (INGRESS, names.client),
        (NETWORK_POLICY, names.head_policy),
        (NETWORK_POLICY, names.workers_policy),
        (SECRET, names.ca_secret),
    ]
