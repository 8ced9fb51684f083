"""The admissions that were decided and are not visible yet, in the order of the decisions of each setup."""

from __future__ import annotations

from dataclasses import dataclass, field

from cfo.runtime import NamespacedName


@dataclass(slots=True)
class Admissions:
    """FluxJobs by the setup that admitted them. Those of one setup write their status one by one, in this order."""

    _jobs: dict[NamespacedName, dict[NamespacedName, None]] = field(default_factory=dict)
    """The jobs of each setup (an ordered set)."""
    _setups: dict[NamespacedName, NamespacedName] = field(default_factory=dict)
    """The setup of each job."""

    def __contains__(self, job: NamespacedName) -> bool:
        return job in self._setups

    def add(self, job: NamespacedName, setup: NamespacedName) -> None:
        """Add a job at the end of those of ``setup``."""
        self.remove(job)
        self._setups[job] = setup
        self._jobs.setdefault(setup, {})[job] = None

    def remove(self, job: NamespacedName) -> list[NamespacedName]:
        """Remove a job; return the one that is first now among those of its setup, if any."""
        setup = self._setups.pop(job, None)
        if setup is None:
            return []
        jobs = self._jobs[setup]
        del jobs[job]
        if not jobs:
            del self._jobs[setup]
        return self.first(setup)

    def first(self, setup: NamespacedName) -> list[NamespacedName]:
        """Return the first job of a setup, if any."""
        jobs = self._jobs.get(setup)
        if not jobs:
            return []
        return [next(iter(jobs))]

    def may_write(self, job: NamespacedName) -> bool:
        """Return whether no job of the same setup comes before this one."""
        setup = self._setups.get(job)
        return setup is None or self.first(setup) == [job]
