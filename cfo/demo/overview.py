"""Live tables of RayClusters with their objects, and of the other kinds with their states.

The tables are built from informers: an event marks them as outdated, and they are redrawn after 0.1 s without further
events. On a terminal they are updated in place; otherwise they are printed each time the rows have changed and every
RayCluster has settled.
"""

from __future__ import annotations

from collections.abc import Iterator

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cfo.api.appwrapper import APPWRAPPER, Phase
from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, names_of
from cfo.demo.flux_tables import FluxTables
from cfo.demo.stack_tables import StackTables
from cfo.runtime import (
    EVENT,
    GVK,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    Event,
    Informer,
    Manager,
    NamespacedName,
    Object,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)

__all__ = ["Overview"]

_QUIET = 0.1
"""Seconds without a further event before the tables are redrawn."""

_TableRows = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The columns and rows of a table."""

_CHILDREN = (INGRESS, NETWORK_POLICY, SECRET)


class Overview:
    """Watches RayClusters, the other kinds and what is created for them, through the cache of ``manager``."""

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
        self._flux = FluxTables(manager, self._on_event)
        self._stacks = StackTables(manager, self._on_event)

    def _on_event(self, event: Event) -> None:
        self._changed.set()

    def missing_objects(self, key: NamespacedName) -> list[str]:
        """Return the missing objects of the RayCluster ``key`` (or the RayCluster itself), as kind and name."""
        cluster = self._clusters.reader.get(key)
        if cluster is None:
            return [f"RayCluster {key}"]
        return [
            f"{gvk.kind} {name}"
            for gvk, name in _expected(cluster)
            if not self._children[gvk].reader.contains(NamespacedName(key.namespace, name))
        ]

    def unsettled_reason(self, gvk: GVK, key: NamespacedName) -> str:
        """Return why the object ``key`` has not settled yet; empty if it has settled."""
        if gvk in FluxTables.kinds:
            return self._flux.unsettled_reason(gvk, key)
        if gvk in StackTables.kinds:
            return self._stacks.unsettled_reason(gvk, key)
        if gvk == RAY_CLUSTER:
            missing = self.missing_objects(key)
            return f"RayCluster {key} is missing {', '.join(missing)}" if missing else ""
        wrapper = self._wrappers.reader.get(key)
        phase = _phase(wrapper) if wrapper is not None else "missing"
        return "" if phase == Phase.SUCCEEDED else f"AppWrapper {key} is {phase or 'new'}"

    async def wait_until_settled(self, expected: list[tuple[GVK, NamespacedName]]) -> None:
        """Wait until all of ``expected`` have settled.

        RayClusters have all objects, AppWrappers have succeeded, FluxJobs and MiniClusters have finished,
        InferenceStacks are ready.
        """
        while any(self.unsettled_reason(gvk, key) for gvk, key in expected):
            await self._next_change()

    async def run(self) -> None:
        """Show the tables until cancelled."""
        if not self._console.is_terminal:
            await self._print_when_settled()
        with Live(self.tables(), console=self._console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                await self._next_change()
                live.update(self.tables(), refresh=True)

    async def _print_when_settled(self) -> None:
        shown: list[_TableRows] = []
        while True:
            rows = list(self._tables())
            if rows != shown and not any(
                self.missing_objects(key_of(cluster)) for cluster in self._clusters.reader.list()
            ):
                self._console.print(self.tables())
                shown = rows
            await self._next_change()

    async def _next_change(self) -> None:
        """Wait for an event, and then until no further event arrives for :data:`_QUIET` seconds."""
        await self._changed.wait()
        while self._changed.is_set():
            self._changed = anyio.Event()
            with anyio.move_on_after(_QUIET):
                await self._changed.wait()

    def tables(self) -> Group:
        """Return the current tables: that of RayClusters, and those of the other kinds that have objects."""
        return Group(*(_table(columns, rows) for columns, rows in self._tables()))

    def _tables(self) -> Iterator[_TableRows]:
        yield ("RayCluster", "state", "objects", "events"), self._rows()
        if rows := self._wrapper_rows():
            yield ("AppWrapper", "phase", "components", "events"), rows
        yield from self._flux.tables(self._events_about)
        yield from self._stacks.tables(self._events_about)

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
                "\n".join(self._children_of(cluster)),
                "\n".join(self._events_about(cluster)),
            )
            for cluster in clusters
        ]

    def _state(self, cluster: Object) -> str:
        missing = self.missing_objects(key_of(cluster))
        if missing:
            return "waiting for " + ", ".join(missing)
        return "suspended" if is_suspended(cluster) else "settled"

    def _children_of(self, cluster: Object) -> list[str]:
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
        # Text is not parsed: rich would interpret [brackets] in it as markup.
        table.add_row(*map(Text, row))
    return table


def _phase(wrapper: Object) -> str:
    return (wrapper.get("status") or {}).get("phase") or ""


def _expected(cluster: Object) -> list[tuple[GVK, str]]:
    """Return the objects that a RayCluster gets on vanilla Kubernetes with OAuth disabled and mTLS enabled."""
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
