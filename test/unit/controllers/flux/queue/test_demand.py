"""What the queue counts is what is created: the demand of FluxJobs and of pods, compared with the rendered objects."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfo.api.container_resources import resource_errors
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.pod_requests import PodShape, amounts_of
from cfo.controllers.flux.fluxjob.rendering import desired_minicluster
from cfo.controllers.flux.minicluster.plan import Plan
from cfo.controllers.flux.minicluster.pods import desired_service_pod
from cfo.controllers.flux.minicluster.resources import desired_job
from cfo.controllers.flux.queue.model import Demand
from cfo.controllers.flux.queue.shape import demand_of_job, demand_of_pod, needed_pods
from cfo.runtime.objects import parse_quantity
from cfo.runtime.objects.field import Path
from cfo.runtime.objects.unstructured import Object
from envtest.builtins.pod_resources import set_resource_defaults
from envtest.simulation.fit import requests_of
from test.support.flux_environment import flux_job, flux_setup
from test.support.flux_queue import Queue

NAMES = ("cpu", "memory", "nvidia.com/gpu")
QUOTA = dict.fromkeys(NAMES, "1n")

QUANTITIES = st.sampled_from([1, 0, "1m", "0.1", "1000", "3Gi", "1n", "1.0000000001", "1e3", "007"])
AMOUNTS = st.one_of(st.none(), st.dictionaries(st.sampled_from(NAMES), QUANTITIES, max_size=2))
RESOURCES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {}, optional={"requests": AMOUNTS.filter(lambda it: it is not None), "limits": AMOUNTS}
    ),
).map(lambda it: it and {key: value for key, value in it.items() if value is not None})
ALLOWED = RESOURCES.filter(lambda it: not any(resource_errors(it or {}, Path("resources"))))
"""Resources that are not refused: a FluxSetup with others governs nothing."""
SIZES = st.one_of(st.none(), st.integers(1, 4))


def _fields(**values: Any) -> Object:
    return {name: value for name, value in values.items() if value is not None}


CONTAINERS = st.builds(
    lambda resources: _fields(image="i", name="c", resources=resources), RESOURCES
)


def _flux(resources: Object | None) -> Object:
    return {"container": _fields(disable=True, resources=resources)}


FLUX = st.builds(_flux, RESOURCES)
PODS = st.builds(lambda amounts: _fields(resources=amounts, runtimeClassName="kata"), AMOUNTS)


@st.composite
def templates(draw: st.DrawFn) -> Object:
    containers = draw(st.lists(CONTAINERS, max_size=3))
    if len(containers) > 1:
        containers[draw(st.integers(0, len(containers) - 1))]["runFlux"] = True
    parts = (
        st.one_of(st.none(), FLUX),
        st.one_of(st.none(), PODS),
        st.one_of(st.none(), st.lists(CONTAINERS, max_size=2)),
    )
    flux, pod, services = (draw(part) for part in parts)
    size = draw(SIZES)
    maximum = draw(SIZES)
    return _fields(
        containers=containers or None,
        flux=flux,
        pod=pod,
        services=services,
        size=size,
        maxSize=maximum,
    )


def created(job: Object, setup: Object) -> tuple[int, dict[str, Decimal]]:
    """Return the number of pods that are created for a job, and what they request after the API server's defaults."""
    cluster = desired_minicluster({**job, "metadata": {**job["metadata"], "uid": "1"}}, setup)
    plan = Plan.of(cluster)
    plan = Plan.of(cluster, size=plan.maximum)
    pods = [desired_job(plan)["spec"]["template"]["spec"]] * plan.size
    pods += [desired_service_pod(plan)["spec"]] if plan.services else []
    total: dict[str, Decimal] = {}
    for pod in pods:
        spec = copy.deepcopy(pod)
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            set_resource_defaults(container.setdefault("resources", {}))
        spec["overhead"] = {
            name: str(amount) for name, amount in (spec.get("overhead") or {}).items()
        }
        for name, amount in requests_of(spec).items():
            total[name] = total.get(name, Decimal(0)) + Decimal(amount) / 10**9
    return len(pods), total


def counted(job: Object, setup: Object) -> tuple[int, dict[str, Decimal]]:
    """Return what the queue says that it counts for a job: the quota is nothing, so each job is too large."""
    queue = Queue(max_size=0, resources=QUOTA, mini_cluster=setup["spec"]["mini-cluster"])
    queue.put(FLUX_JOB, {**job, "status": {"jobid": "job", "observedGeneration": 1}})
    queue.decide()
    verdict = queue.verdict("job")
    assert verdict is not None
    pods, *amounts = (
        verdict.message.removeprefix("Needs ").partition(", which is more than")[0].split(", ")
    )
    return int(pods.split()[0]), {
        name: parse_quantity(amount)
        for name, _, amount in (item.partition(" ") for item in amounts)
    }


@settings(max_examples=120, deadline=None, database=None, derandomize=True)
@given(
    resources=RESOURCES,
    template=templates(),
    size=SIZES,
    defaults=st.builds(
        _fields,
        flux=st.one_of(st.none(), st.builds(_flux, ALLOWED)),
        pod=st.one_of(st.none(), PODS),
        size=SIZES,
    ),
)
def test_no_layout_of_containers_requests_more_than_is_counted(
    resources: Object | None, template: Object, size: int | None, defaults: Object
) -> None:
    job = flux_job("job", size=size, resources=resources, template=template)
    setup = flux_setup(mini_cluster=defaults)
    pods, requested = created(job, setup)
    counted_pods, amounts = counted(job, setup)
    assert counted_pods == pods
    for name, amount in requested.items():
        assert amount <= amounts.get(name, 0) <= amount + Decimal("0.001") * pods * 5, name


@settings(max_examples=120, deadline=None, database=None, derandomize=True)
@given(
    resources=RESOURCES,
    template=templates(),
    size=SIZES,
    defaults=st.builds(
        _fields,
        flux=st.one_of(st.none(), st.builds(_flux, ALLOWED)),
        pod=st.one_of(st.none(), PODS),
        size=SIZES,
    ),
)
def test_a_pod_must_request_each_part_of_the_quota_of_a_job_that_is_not_elastic(
    resources: Object | None, template: Object, size: int | None, defaults: Object
) -> None:
    """Devices count as a whole; of CPU and memory, a quarter must be requested."""
    template = _fields(**{**template, "maxSize": None})
    job = flux_job("job", size=size, resources=resources, template=template)
    shapes = (orjson.dumps(job["spec"]), orjson.dumps(defaults))
    demand = demand_of_job(*shapes)
    needed = needed_pods(*shapes, NAMES)
    assert needed.size + (needed.service is not None) == demand.pods
    for name in NAMES:
        amount = needed.pod.get(name, 0) * needed.size + (needed.service or {}).get(name, 0)
        total = demand.resources.get(name, 0)
        assert amount == total if "/" in name else total <= 4 * amount, name


def test_negative_numbers_of_a_job_that_was_not_validated_take_no_quota_of_others() -> None:
    requests = {"cpu": "-1", "memory": "1Gi"}
    job = flux_job("job", size=-5, resources={"requests": requests}, template={"maxSize": -9})
    demand = demand_of_job(orjson.dumps(job["spec"]), b"{}")
    assert demand == Demand(1, {"memory": 1024**3 * 1000})


ESCAPES: dict[str, Object] = {
    "empty resources": {
        "resources": {},
        "template": {"containers": [{"image": "i", "resources": {"requests": {"cpu": 1000}}}]},
    },
    "another container runs flux": {
        "resources": {"requests": {"cpu": "1m"}},
        "template": {
            "containers": [
                {"image": "i", "name": "a", "resources": {"requests": {"cpu": 1000}}},
                {"image": "i", "name": "b", "runFlux": True},
            ]
        },
    },
    "overhead": {"template": {"pod": {"resources": {"cpu": 1000}, "runtimeClassName": "kata"}}},
    "a quantity that cannot be read": {
        "template": {
            "containers": [{"image": "i", "resources": {"limits": {"cpu": "0" * 80 + "1000"}}}]
        }
    },
}


@pytest.mark.parametrize("name", ESCAPES)
def test_job_does_not_escape_the_quota(name: str) -> None:
    queue = Queue(resources={"cpu": "10"})
    queue.put_job("a", size=1, **ESCAPES[name])
    queue.decide()
    assert queue.reason("a") == "TooLarge"


def test_requests_that_the_setup_adds_count() -> None:
    flux = {"container": {"resources": {"requests": {"cpu": 1000}}}}
    queue = Queue(resources={"cpu": "10"}, mini_cluster={"flux": flux})
    queue.put_job("a", size=1)
    queue.decide()
    assert queue.reason("a") == "TooLarge"


def test_message_about_a_job_that_is_too_large_has_the_limits_that_it_exceeds() -> None:
    flux = {"container": {"resources": {"requests": {"cpu": 4}}}}
    messages = []
    for max_size, cpu in ((2, "100"), (9, "10"), (2, "10")):
        queue = Queue(max_size=max_size, resources={"cpu": cpu}, mini_cluster={"flux": flux})
        queue.put_job("a", size=3)
        queue.decide()
        verdict = queue.verdict("a")
        assert verdict is not None
        messages.append(verdict.message)
    needs = "Needs 3 pods, cpu 12, which is more than FluxSetup operator/setup allows in total"
    assert messages == [f"{needs} (2 pods)", f"{needs} (cpu 10)", f"{needs} (2 pods, cpu 10)"]


CLAIM = [{"image": "i", "resources": {"requests": {"cpu": "1e9"}}}]


@pytest.mark.parametrize(
    "owner", ["no owner", "a job that waits", "a deleted job", "an admitted job"]
)
def test_minicluster_holds_what_its_pods_request_and_not_what_it_claims(owner: str) -> None:
    queue = Queue(max_size=1000, resources={"cpu": "10"})
    if owner == "a job that waits":
        queue.put_job("manual", size=2000)
    elif owner == "an admitted job":
        queue.put_job("manual", "QuotaReserved", size=1)
    queue.put_cluster("manual", size=500, owned=owner != "no owner", containers=CLAIM)
    queue.put_batch_job("manual", parallelism=500)
    queue.put_pod(
        "manual-0", "manual", spec={"containers": [{"resources": {"requests": {"cpu": "1m"}}}]}
    )
    queue.put_job("a", size=1, resources={"requests": {"cpu": "9"}})
    assert queue.decide().pods == 2
    assert queue.reason("a") == "Admitted"
    pod = {
        "containers": [{"resources": {"limits": {"cpu": "300m"}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "100m"}}, "restartPolicy": "Always"}],
        "overhead": {"cpu": "200m"},
    }
    queue.put_pod("manual-1", "manual", spec=pod)
    queue.put_job("b", size=1, resources={"requests": {"cpu": "400m"}})
    queue.decide()
    assert queue.reason("b") == "InsufficientQuota"  # 9 + 0.001 + 0.6 are used
    queue.put_job("a", "QuotaReserved", size=1, resources={"requests": {"cpu": "9"}})
    queue.put_pod("manual-1", "manual", "Succeeded", spec=pod)
    queue.remove(MINICLUSTER, "manual")
    queue.put_pod("manual-1", "manual", spec={**pod, "overhead": {"cpu": "50m"}})
    queue.decide()
    assert queue.reason("b") == "Admitted"


def test_pod_takes_nothing_of_the_quota_before_the_scheduler_has_found_a_node() -> None:
    queue = Queue(max_size=10, resources={"cpu": "10"})
    claim = {"containers": CLAIM, "nodeName": "chosen-by-the-user"}
    for number in range(20):
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        queue.put_pod(
            f"p{number}",
            "evil",
            "Pending",
            spec=claim,
            conditions=[unscheduled] if number % 2 else [],
        )
    queue.put_job("a", size=1, resources={"requests": {"cpu": "9"}})
    assert queue.decide().pods == 1
    assert queue.reason("a") == "Admitted"
    queue.put_pod("p0", "evil", "Pending", conditions=[{"type": "PodScheduled", "status": "True"}])
    assert queue.decide().pods == 2


def test_amounts_are_rounded_up_and_limited() -> None:
    unread = ("1" * 30, "1e30", "1e99999999999999999999999", "x", "1" * 65)
    assert amounts_of({text: text for text in unread}) == dict.fromkeys(unread, 10**24)
    assert amounts_of({"a": "1n", "b": "1." + "0" * 40 + "1", "c": "-5", "d": 2}) == {
        "a": 1,
        "b": 1001,
        "c": 0,
        "d": 2000,
    }


def test_demand_is_computed_once_for_each_job_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[bytes] = []

    def count(shape: bytes, defaults: bytes) -> Demand:
        computed.append(shape)
        return demand_of_job(shape, defaults)

    monkeypatch.setattr("cfo.controllers.flux.queue.group.demand_of_job", count)
    queue = Queue(max_size=10, resources={"cpu": "10"})
    containers = [
        {"name": f"c{number}", "resources": {"requests": {"cpu": f"{number}m"}}}
        for number in range(100)
    ]
    for name in "abc":
        queue.put_job(name, size=1, template={"containers": containers})
    queue.put_job("a", "Validated", size=1, template={"containers": containers})
    queue.put(
        FLUX_SETUP,
        flux_setup(
            namespace="operator", namespaceSelector={}, max_size=20, resources={"cpu": "10"}
        ),
    )
    queue.decide()
    assert len(computed) == 3
    defaults = {"pod": {"resources": {"cpu": 1}}}
    queue.put(
        FLUX_SETUP, flux_setup(namespace="operator", namespaceSelector={}, mini_cluster=defaults)
    )
    queue.decide()
    assert len(computed) > 3


def test_resources_of_a_pod_are_counted_up_to_a_number_that_no_node_has() -> None:
    names = [f"example.com/{number:03}" for number in range(100)]
    many = {"resources": {"requests": {"zero": 0, **dict.fromkeys(names, 1)}}}
    small = {"resources": {"requests": {"cpu": 1}}}
    inits = [{"restartPolicy": "Always", "resources": {"requests": {name: "1"}}} for name in names]
    for pod in ({"containers": [many, small]}, {"containers": [small], "initContainers": inits}):
        resources = demand_of_pod(msgspec.convert(pod, PodShape)).resources
        assert len(resources) == 30
        assert set(resources) == {"cpu", *names[:29]}
        assert resources["cpu"] == 1000
