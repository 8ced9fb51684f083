"""Which major versions of the operator seem to run, for warnings about stacks that wait for one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from cfo.api.inferencestack.leases import (
    LEASE_SELECTOR,
    MAX_LEASE_BYTES,
    VERSIONS,
    lease_name,
)
from cfo.api.reading import path
from cfo.runtime import Entry, Informer, Manager
from cfo.runtime.objects import LEASE

_INDEX: Final = "operator-version"
_MAX_LEASES: Final = 20
"""The maximum number of Leases that are read for one review: any tenant can create some."""


class RunningVersions:
    """The major versions whose Lease an operator holds; it is unknown before :meth:`read`."""

    def __init__(self) -> None:
        self._leases: Informer | None = None

    def read(self, manager: Manager) -> None:
        """Read the Leases with the informer of the controllers."""
        leases = manager.cache.informer(
            LEASE, label_selector=LEASE_SELECTOR, max_bytes=MAX_LEASE_BYTES
        )
        self._leases = leases.add_index(_INDEX, _versions)

    def lacks(self, version: str) -> bool:
        """Return whether no operator of ``version`` is known to run; false while that is not known.

        A Lease that no operator holds suppresses a warning, nothing else, so its holder is not verified.
        """
        leases = self._leases
        if leases is None or not leases.has_synced:
            return False
        found = leases.reader.entries(index=(_INDEX, lease_name(version)))
        return not any(
            path(lease.object(), "spec", "holderIdentity") for lease in islice(found, _MAX_LEASES)
        )


def _versions(lease: Entry) -> Iterable[str]:
    return (lease.name,) if lease.name in VERSIONS else ()
