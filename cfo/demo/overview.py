"""What each RayCluster got, and where each AppWrapper is, as tables that follow what happens.

They are made from informers: an event marks them as stale, and they are drawn anew when things are quiet for a moment.
On a terminal they stay in place; elsewhere they are printed whenever every cluster has settled in a new way.
"""

from __future__ import annotations

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cfo.api.appwrapper import APPWRAPPER, Phase
from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, names_of
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.kinds import EVENT, INGRESS, NETWORK_POLICY, SECRET
from cfo.runtime.manager import Manager
from cfo.runtime.objects import GVK, NamespacedName, Object, key_of, name_of, namespace_of, uid_of

__all__ = ["Overview"]

_QUIET = 0.1
"""Seconds without a further event before the table is drawn."""

_CHILDREN = (INGRESS, NETWORK_POLICY, SECRET)


class Overview:
    """Follows the RayClusters and AppWrappers that ``manager``'s cache sees, and what is made for them."""

    def __init__(self, manager: Manager, console: Console) -> None:
        self._console = console
        self._changed = anyio.Event()
        cache = manager.cache
        self._clusters = cache.informer(RAY_CLUSTER)
        self._wrappers = cache.informer(APPWRAPPER)
        self._children: dict[GVK, Informer] = {
            gvk: cache.informer(gvk, label_selector=CLUSTER_LABEL) for gvk in _CHILDREN
        }
        self._events = cache.informer(EVENT)
        for informer in (self._clusters, self._wrappers, self._events, *self._children.values()):
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

    def unsettled(self, gvk: GVK, key: NamespacedName) -> str:
        """What the RayCluster or AppWrapper ``key`` has not come to yet, or nothing."""
        if gvk == RAY_CLUSTER:
            missing = self.missing(key)
            return f"{key} misses {', '.join(missing)}" if missing else ""
        wrapper = self._wrappers.reader.get(key)
        phase = _phase(wrapper) if wrapper is not None else "missing"
        return "" if phase == Phase.SUCCEEDED else f"AppWrapper {key} is {phase or 'new'}"

    async def settled(self, expected: list[tuple[GVK, NamespacedName]]) -> None:
        """Returns when all of ``expected`` have what they should have and are where they should be."""
        while any(self.unsettled(gvk, key) for gvk, key in expected):
            await self._next_change()

    async def run(self) -> None:
        """Shows the table until cancelled."""
        if not self._console.is_terminal:
            await self._print_when_settled()
        with Live(self.tables(), console=self._console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                await self._next_change()
                live.update(self.tables(), refresh=True)

    async def _print_when_settled(self) -> None:
        shown: list[tuple[str, ...]] = []
        while True:
            rows = self._rows() + self._wrapper_rows()
            if rows != shown and not any(self.missing(key_of(cluster)) for cluster in self._clusters.reader.list()):
                self._console.print(self.tables())
                shown = rows
            await self._next_change()

    async def _next_change(self) -> None:
        """Waits for a change, then until things are quiet."""
        await self._changed.wait()
        while self._changed.is_set():
            self._changed = anyio.Event()
            with anyio.move_on_after(_QUIET):
                await self._changed.wait()

    def tables(self) -> Group:
        """The tables as things are now; that of AppWrappers only if there are any."""
        clusters = _table(("RayCluster", "state", "made for it", "events"), self._rows())
        rows = self._wrapper_rows()
        return (
            Group(clusters, _table(("AppWrapper", "phase", "components", "events"), rows)) if rows else Group(clusters)
        )

    def _wrapper_rows(self) -> list[tuple[str, ...]]:
        return [
            (
                str(key_of(wrapper)),
                _phase(wrapper),
                "\n".join(
                    f"{component['kind']} {component['name']}"
                    for component in (wrapper.get("status") or {}).get("componentStatus") or ()
                    if component.get("name")
                ),
                "\n".join(self._events_about(wrapper)),
            )
            for wrapper in sorted(self._wrappers.reader.list(), key=key_of)
        ]

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

    def _events_about(self, obj: Object) -> list[str]:
        uid = uid_of(obj)
        return sorted(
            {
                f"{event.get('type')} {event.get('reason')}: {event.get('note')}"
                for event in self._events.reader.list(namespace=namespace_of(obj))
                if (event.get("regarding") or {}).get("uid") == uid
            }
        )


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=f"{columns[0]}s", title_justify="left", header_style="bold", show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # what others wrote is shown as it is: rich would take [brackets] for its markup
        table.add_row(*map(Text, row))
    return table


def _phase(wrapper: Object) -> str:
    return (wrapper.get("status") or {}).get("phase") or ""


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
