"""The number of replicas, and who sets it."""

from __future__ import annotations

import pytest

from cfo.api.inferencestack.names import (
    AUTOSCALED,
    KEPT_FOR_REPLICA_COUNT,
    KEPT_REPLICAS,
    SCALED_BY_OTHERS,
)
from cfo.controllers.inferencestack.rendering.facts import (
    AutoscalerFacts,
    LiveDeployment,
    Replicas,
    decide_replicas,
)

ON = AutoscalerFacts(available=True)
ABSENT = AutoscalerFacts(available=False, minimum=2)
MARK = {AUTOSCALED: "true"}


def kept(replicas: int, replica_count: int) -> dict[str, str]:
    return {KEPT_REPLICAS: str(replicas), KEPT_FOR_REPLICA_COUNT: str(replica_count)}


def live(
    replicas: int, *, ours: bool = True, autoscaled: bool = False, **labels: str
) -> LiveDeployment:
    return LiveDeployment(
        replicas=replicas, owns_replicas=ours, is_autoscaled=autoscaled, labels=labels
    )


def noticed(replica_count: int) -> dict[str, str]:
    return {SCALED_BY_OTHERS: str(replica_count)}


@pytest.mark.parametrize(
    ("replica_count", "found", "scaling", "expected"),
    [
        pytest.param(3, None, None, Replicas(3), id="created"),
        pytest.param(3, live(5, ours=False), None, Replicas(3), id="changed by kubectl scale"),
        pytest.param(
            1,
            live(5, ours=False, autoscaled=True),
            None,
            Replicas(None, noticed(1)),
            id="autoscaler of a user",
        ),
        pytest.param(
            1,
            live(6, ours=False, **noticed(1)),
            None,
            Replicas(None, noticed(1)),
            id="noticed before",
        ),
        pytest.param(
            2,
            live(6, ours=False, **noticed(1)),
            None,
            Replicas(2),
            id="replicaCount changed after that",
        ),
        pytest.param(
            1,
            live(6, ours=False, **noticed(1)),
            ON,
            Replicas(None, MARK),
            id="switched on after that",
        ),
        pytest.param(1, live(1, **noticed(1)), None, Replicas(1), id="replicas are ours again"),
        pytest.param(
            1,
            live(0, ours=False, autoscaled=True, **MARK),
            None,
            Replicas(1),
            id="switched off at zero, by its owner",
        ),
        pytest.param(1, None, ON, Replicas(None, MARK), id="created with an autoscaler"),
        pytest.param(
            1, live(6), ON, Replicas(6, MARK), id="autoscaler switched on, replicas are ours"
        ),
        pytest.param(
            1, live(6, ours=False, **MARK), ON, Replicas(None, MARK), id="autoscaler owns replicas"
        ),
        pytest.param(
            1,
            live(0, ours=False, **MARK),
            ON,
            Replicas(None, MARK),
            id="scaled to zero by the autoscaler",
        ),
        pytest.param(1, live(0), ON, Replicas(1, MARK), id="switched on at zero"),
        pytest.param(
            1, live(6, ours=False, **MARK), None, Replicas(6, kept(6, 1)), id="switched off"
        ),
        pytest.param(
            1, live(6, **kept(6, 1)), None, Replicas(6, kept(6, 1)), id="stays after switching off"
        ),
        pytest.param(
            2,
            live(6, **kept(6, 1)),
            None,
            Replicas(2),
            id="replicaCount changed after switching off",
        ),
        pytest.param(
            6, live(6, ours=False, **MARK), None, Replicas(6), id="switched off at replicaCount"
        ),
        pytest.param(1, live(0, ours=False, **MARK), None, Replicas(1), id="switched off at zero"),
        pytest.param(1, live(6, **kept(6, 1)), ON, Replicas(6, MARK), id="switched on again"),
        pytest.param(1, None, ABSENT, Replicas(2), id="KEDA is absent"),
        pytest.param(1, live(2), ABSENT, Replicas(2), id="KEDA is still absent"),
        pytest.param(
            1, live(6, ours=False, **MARK), ABSENT, Replicas(6, MARK), id="KEDA was removed"
        ),
        pytest.param(1, live(2), ON, Replicas(2, MARK), id="KEDA was installed later"),
        pytest.param(
            1,
            live(4, **{KEPT_REPLICAS: "x", KEPT_FOR_REPLICA_COUNT: "1"}),
            None,
            Replicas(1),
            id="invalid",
        ),
        pytest.param(
            1,
            live(4, **{KEPT_REPLICAS: "9" * 11, KEPT_FOR_REPLICA_COUNT: "1"}),
            None,
            Replicas(1),
            id="huge",
        ),
    ],
)
def test_number_of_replicas(
    replica_count: int,
    found: LiveDeployment | None,
    scaling: AutoscalerFacts | None,
    expected: Replicas,
) -> None:
    assert decide_replicas(replica_count, found, scaling=scaling) == expected


@pytest.mark.parametrize("scaling", [None, ON, ABSENT])
def test_suspended_deployment_remembers_its_replicas(scaling: AutoscalerFacts | None) -> None:
    suspended = decide_replicas(
        1, live(6, ours=False, **(MARK if scaling else {})), scaling=scaling, suspended=True
    )
    assert suspended == Replicas(0, kept(6, 1))
    again = decide_replicas(1, live(0, **suspended.labels), scaling=scaling, suspended=True)
    assert again == suspended


@pytest.mark.parametrize(
    ("scaling", "expected"), [(None, Replicas(6, kept(6, 1))), (ON, Replicas(6, MARK))]
)
def test_resumed_deployment_gets_its_replicas_again(
    scaling: AutoscalerFacts | None, expected: Replicas
) -> None:
    assert decide_replicas(1, live(0, **kept(6, 1)), scaling=scaling) == expected


def test_deployment_that_is_created_suspended_gets_its_replica_count() -> None:
    assert decide_replicas(3, None, suspended=True) == Replicas(0)
    assert decide_replicas(3, live(0)) == Replicas(3)


def test_number_never_drops_while_scaling_is_switched_on_and_off() -> None:
    """Each step writes what is decided; the autoscaler takes the field over by changing it."""
    at = live(6)
    for scaling, by_autoscaler in (
        (ON, None),
        (ON, 7),
        (ON, None),
        (None, None),
        (None, None),
        (ON, None),
        (None, None),
    ):
        decided = decide_replicas(1, at, scaling=scaling)
        count = at.replicas if decided.count is None else decided.count
        assert count >= 6
        ours = decided.count is not None and by_autoscaler is None
        at = LiveDeployment(by_autoscaler or count, ours, dict(decided.labels))
