"""Whether the applied objects have settled: ``cfo run --embedded --until-settled`` waits for it."""

from __future__ import annotations

import anyio

from cfo.console.summaries import KindView, Overview
from cfo.runtime import GVK, NamespacedName, Object, gvk_of, key_of


class Settling:
    """Which of ``objects`` have not settled yet, by the summaries and informers of ``overview``.

    See :class:`~cfo.console.summaries.KindView` for what each kind waits for; objects of other kinds settle at once.
    """

    def __init__(self, overview: Overview, objects: list[Object]) -> None:
        self._overview = overview
        self._expected = [
            (view, key_of(obj))
            for obj in objects
            for view in overview.views.values()
            if (view.final_state or view.expected is not None) and _is_a(obj, view.gvk)
        ]

    async def wait(self) -> None:
        """Wait until all objects have settled."""
        changed = anyio.Event()

        def on_event(_: object) -> None:
            changed.set()

        for informer in self._overview.informers:
            informer.add_handler(on_event)
        try:
            while await self.reasons():
                await changed.wait()
                changed = anyio.Event()
        finally:
            for informer in self._overview.informers:
                informer.remove_handler(on_event)

    async def reasons(self) -> list[str]:
        """Return why objects have not settled yet."""
        states = {(each.gvk, each.key): each.state or "new" for each in await self._overview.snapshot()}
        found = (self._reason(view, key, states.get((view.gvk, key), "missing")) for view, key in self._expected)
        return [reason for reason in found if reason]

    def _reason(self, view: KindView, key: NamespacedName, state: str) -> str:
        kind = view.gvk.kind
        if view.expected is None:
            return "" if state == view.final_state else f"{kind} {key} is {state}"
        obj = self._overview.informer_of[view.gvk].reader.get(key)
        missing = [f"{kind} {key}"] if obj is None else self._missing(view, obj)
        return f"{kind} {key} is missing {', '.join(missing)}" if missing else ""

    def _missing(self, view: KindView, obj: Object) -> list[str]:
        children, namespace = self._overview.children_of[view.gvk], key_of(obj).namespace
        return [
            f"{gvk.kind} {name}"
            for gvk, name in (view.expected(obj) if view.expected is not None else ())
            if not children[gvk].reader.contains(NamespacedName(namespace, name))
        ]


def _is_a(obj: Object, wanted: GVK) -> bool:
    gvk = gvk_of(obj)
    return (gvk.group, gvk.kind) == (wanted.group, wanted.kind)
