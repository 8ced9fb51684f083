"""What the API server and its controllers ask of the scenario of a control plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from envtest.apimachinery.objects import Object
from envtest.simulation.model import Behavior, NodeTemplate

__all__ = ["Simulation"]


class Simulation(Protocol):
    """The nodes and the behavior of pods; :class:`envtest.scenarios.scenario.Scenario` implements it."""

    @property
    def nodes(self) -> Sequence[NodeTemplate]:
        """The nodes that exist from the start."""

    def behavior_of(self, pod: Object) -> Behavior:
        """Return what happens to a pod."""

    def ports_of(self, pod: Object) -> Mapping[int, tuple[str, int]]:
        """Return the local host and port for each port of a pod."""

    def start(self, pod: Object) -> None:
        """Count a pod that the kubelet sees for the first time."""

    def touch(self, namespace: str, name: str) -> None:
        """Notify those who wait for a change of a pod."""

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """Forget a deleted pod."""

    def disconnect(self) -> None:
        """End all connections to pods, because the control plane stops."""
