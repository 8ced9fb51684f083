"""Connects to a cluster, and watches what the user is allowed to read there.

Each kind is listed in pages, and then watched, also for a single output: the informers are those of the operator, with
their limits. The discovery of the API server says which kinds exist; the API server says for each list whether it is
allowed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from cfo.console.summaries import KindView, Overview, related_kinds
from cfo.runtime import GVK, Cache, RESTMapper, Transport, UnknownKind


class NotReadable(Exception):
    """Raised if nothing can be read from the cluster; the message is one line."""


@dataclass(frozen=True, slots=True)
class Session:
    """An overview of what can be read. ``not_served`` are the kinds that the cluster does not have."""

    overview: Overview
    not_served: tuple[GVK, ...]

    def unavailable(self) -> dict[str, str]:
        """Return the kinds that exist and cannot be read now, with a short reason."""
        forbidden = self.overview.forbidden()
        return {
            gvk.kind: "forbidden" if gvk in forbidden else problem
            for gvk, problem in sorted(self.overview.unavailable().items())
        }


@asynccontextmanager
async def connect(
    transport: Transport, views: Sequence[KindView], namespace: str | None, timeout: float
) -> AsyncIterator[Session]:
    """Yield a session in which each kind was read, or is forbidden. ``namespace``: ``None`` means all namespaces.

    Raises :class:`NotReadable` if that takes longer than ``timeout`` seconds, or if nothing can be read, and the errors
    of the client.
    """
    mapper = RESTMapper(transport)
    with anyio.move_on_after(timeout) as scope:
        served = await _served(mapper, (view.gvk for view in views))
        related = await _served(mapper, related_kinds(views))
    if scope.cancelled_caught:
        raise NotReadable(f"{transport.config.server} does not answer within {timeout:g} s")
    cache = Cache(transport, mapper, namespaces=None if namespace is None else [namespace])
    overview = Overview(cache, [view for view in views if view.gvk in served], related=related)
    session = Session(overview, tuple(view.gvk for view in views if view.gvk not in served))
    async with anyio.create_task_group() as tasks:
        await tasks.start(cache.run)
        with anyio.move_on_after(timeout):
            await overview.wait_for_sync()
        _check_readable(session, served, namespace, timeout)
        yield session
        tasks.cancel_scope.cancel()


def _check_readable(session: Session, served: Collection[GVK], namespace: str | None, timeout: float) -> None:
    overview = session.overview
    if not served or any(informer.has_synced for informer in overview.informers if informer.gvk in served):
        return
    if all(informer.is_forbidden for informer in overview.informers if informer.gvk in served):
        where = f"namespace {namespace}" if namespace is not None else "all namespaces; try -n NAMESPACE"
        raise NotReadable(f"you are not allowed to list any of the kinds in {where}")
    reasons = "; ".join(sorted(set(overview.unavailable().values())))
    raise NotReadable(f"nothing could be read within {timeout:g} s: {reasons}")


async def _served(mapper: RESTMapper, kinds: Iterable[GVK]) -> list[GVK]:
    found = []
    for gvk in kinds:
        try:
            await mapper.resource(gvk)
        except UnknownKind:
            continue
        found.append(gvk)
    return found
