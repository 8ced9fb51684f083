"""Settings, injection, pods, nodes, Workloads and lending limits: the inputs of decisions."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import anyio
import orjson
import pytest
from anyio.lowlevel import checkpoint

from cfo.api.appwrapper.created_components import DELETED
from cfo.api.appwrapper.names import workload_name
from cfo.api.appwrapper.podsets import SUB_GROUP_COUNT, PodSetError
from cfo.api.pod_requests import ContainerShape, PodShape, Resources
from cfo.config.appwrapper import (
    AppWrapperConfiguration,
    AutopilotConfiguration,
    FaultToleranceConfiguration,
)
from cfo.config.appwrapper_settings import FORCEFUL_DELETION, Settings
from cfo.controllers.appwrapper.components import (
    InjectionError,
    components_of,
    desired_object,
    recorded_uids,
)
from cfo.controllers.appwrapper.nodes import marked_resources
from cfo.controllers.appwrapper.pods import Termination, WrapperPod, pod_of, pods_of
from cfo.controllers.appwrapper.slack_queue import lending_limits, unschedulable_capacity
from cfo.controllers.appwrapper.workload import (
    WorkloadPriority,
    _topology,
    desired_workload,
    evicted_at,
    pod_set_infos,
)
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, annotations_of
from test.support.observations import CONFIG, wrapper

COMPLETE = {"type": "Complete", "status": "True"}
WORKLOAD = GVK("kueue.x-k8s.io", "v1beta2", "Workload")


def entry(kind: str, **obj: Any) -> Entry:
    metadata = {"name": "x", "resourceVersion": "1", **obj.pop("metadata", {})}
    return EntryDecoder(GVK("", "v1", kind)).decode(
        orjson.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **obj})
    )


def settings(**annotations: str) -> Settings:
    return Settings.of(wrapper(**annotations), FaultToleranceConfiguration())


@pytest.mark.parametrize(
    ("string", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("0", 0), (" 2s ", 2)],
)
def test_period_annotation_is_parsed(string: str, seconds: float) -> None:
    result = settings(failureGracePeriodDuration=string)
    assert (result.failure_grace.total_seconds(), result.problems) == (seconds, ())


@pytest.mark.parametrize(
    ("string", "seconds", "problem"),
    [
        ("-5s", 0, "is negative; 0s is used"),
        ("48h", 86400, "must be at most 24h, which is used"),
    ],
)
def test_period_out_of_range_is_limited_and_reported(
    string: str, seconds: float, problem: str
) -> None:
    result = settings(failureGracePeriodDuration=string)
    assert result.failure_grace.total_seconds() == seconds
    name = "workload.codeflare.dev.appwrapper/failureGracePeriodDuration"
    assert result.problems == (f"annotation {name}: '{string}': {problem}",)


def test_negative_number_of_retries_is_zero_and_reported() -> None:
    """It is no way to retry forever."""
    result = settings(retryLimit="-1")
    assert result.retry_limit == 0
    name = "workload.codeflare.dev.appwrapper/retryLimit"
    assert result.problems == (f"annotation {name}: '-1': is negative; 0 is used",)


@pytest.mark.parametrize("string", ["soon", "", "5", "1d", "5 s", "1e9h"])
def test_invalid_period_is_ignored_and_reported(string: str) -> None:
    result = settings(failureGracePeriodDuration=string)
    assert result.failure_grace.total_seconds() == 60
    assert len(result.problems) == 1
    assert repr(string) in result.problems[0]


@pytest.mark.parametrize(
    ("string", "seconds"), [("1h", 3600), ("0s", 604800), ("900h", 604800), ("-1s", 604800)]
)
def test_success_ttl_is_limited_by_ceiling(string: str, seconds: float) -> None:
    assert settings(successTTLDuration=string).success_ttl.total_seconds() == seconds


def test_valid_exit_codes_are_used() -> None:
    result = settings(terminalExitCodes="3, x,137")
    assert result.terminal_exit_codes == {3, 137}
    assert len(result.problems) == 1
    assert not result.is_terminal(0)


def test_exit_codes_and_problems_are_limited() -> None:
    assert settings(retryableExitCodes=",".join(map(str, range(100)))).retryable_exit_codes == set(
        range(100)
    )
    result = settings(
        retryableExitCodes=",".join(map(str, range(200))), terminalExitCodes=",".join("x" * 60_000)
    )
    assert result.retryable_exit_codes == set(range(100))
    assert len(result.problems) == 10
    assert all(len(problem) < 300 and problem.isprintable() for problem in result.problems)
    hostile = settings(retryLimit="9" * 5000, terminalExitCodes="\x1b]0;\u202e,4\r\n")
    assert len("".join(hostile.problems)) < 600
    assert "".join(hostile.problems).isprintable()
    assert hostile.terminal_exit_codes == {4}


def component(obj: Object, config: AppWrapperConfiguration = CONFIG, **info: Any) -> Object:
    wrapped = wrapper(status={"phase": "Resuming"})
    wrapped["spec"]["components"] = [{"template": obj}]
    original = copy.deepcopy(wrapped)
    created = desired_object(wrapped, components_of(wrapped)[0], [info], config)
    assert wrapped == original, "the AppWrapper must not be modified"
    return created


def pod(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"l": "1"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def test_pod_set_info_is_added_to_template() -> None:
    created = component(
        pod(
            tolerations=[{"operator": "Exists"}],
            schedulingGates=[{"name": "a"}],
            nodeSelector={"x": "y"},
        ),
        labels={"l": "1", "m": "2"},
        nodeSelector={"pool": "gold"},
        tolerations=[{"key": "gold"}],
        schedulingGates=[{"name": "a"}, {"name": "b"}],
    )
    assert created["metadata"]["labels"] == {
        "l": "1",
        "m": "2",
        "workload.codeflare.dev/appwrapper": "w",
    }
    assert created["spec"]["nodeSelector"] == {"x": "y", "pool": "gold"}
    assert created["spec"]["tolerations"] == [{"operator": "Exists"}, {"key": "gold"}]
    assert created["spec"]["schedulingGates"] == [{"name": "a"}, {"name": "b"}]
    (owner,) = created["metadata"]["ownerReferences"]
    assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (
            {"nodeSelector": {"pool": "gold"}},
            "conflict updating nodeSelector: conflict for key=pool, value1=silver",
        ),
        (
            {"labels": {"l": "2"}},
            "conflict updating labels: conflict for key=l, value1=1, value2=2",
        ),
    ],
)
def test_conflicting_pod_set_info_is_an_error(info: dict[str, Any], message: str) -> None:
    with pytest.raises(InjectionError, match=message):
        component(pod(nodeSelector={"pool": "silver"}), **info)


@pytest.mark.parametrize(
    "spec", [{"containers": [None]}, {"containers": ["x"]}, {"affinity": "x"}, "x"]
)
def test_component_without_a_pod_spec_is_an_error(spec: Any) -> None:
    """Admission rejects it, but an AppWrapper can be older than the webhooks."""
    wrapped = wrapper(status={"phase": "Resuming"})
    wrapped["spec"]["components"] = [
        {"template": {**pod(), "spec": spec}, "podSets": [{"path": "template"}]}
    ]
    with pytest.raises(InjectionError, match="content at template"):
        desired_object(wrapped, components_of(wrapped)[0], [], CONFIG)


def test_component_of_another_namespace_is_rejected() -> None:
    obj = pod()
    obj["metadata"]["namespace"] = "other"
    with pytest.raises(InjectionError, match='namespace "other"'):
        component(obj)


def test_each_node_selector_term_excludes_marked_nodes() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": []}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    obj = pod(affinity={"nodeAffinity": required})
    assert component(obj)["spec"]["affinity"] == {"nodeAffinity": required}, (
        "it requests no marked resource"
    )
    obj["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    nodes = component(obj)["spec"]["affinity"]["nodeAffinity"]
    expected_expression = {
        "key": "autopilot.ibm.com/gpuhealth",
        "operator": "NotIn",
        "values": ["TESTING", "EVICT"],
    }
    for term in nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        assert term["matchExpressions"][-1] == expected_expression
    (preferred,) = nodes["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["weight"] == 50


def test_scheduler_name_of_template_takes_precedence() -> None:
    config = AppWrapperConfiguration(enabled=True, scheduler_name="mine")
    assert component(pod(), config)["spec"]["schedulerName"] == "mine"
    assert component(pod(schedulerName="theirs"), config)["spec"]["schedulerName"] == "theirs"


def test_pod_is_reduced_to_relevant_fields() -> None:
    terminated_container = {
        "name": "main",
        "state": {
            "terminated": {
                "exitCode": 137,
                "reason": "OOMKilled",
                "finishedAt": "2026-01-02T00:00:00Z",
            }
        },
    }
    result = pod_of(
        entry(
            "Pod",
            metadata={
                "creationTimestamp": "2025-12-31T00:00:00Z",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 0,
            },
            spec={
                "nodeName": "a",
                "containers": [
                    {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "0"}}},
                    {"resources": {"requests": {"example.com/nic": 2}}},
                ],
                "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
                "overhead": {"cpu": "100m"},
            },
            status={
                "phase": "Failed",
                "containerStatuses": [terminated_container, {"state": {"running": {}}}],
            },
        )
    )
    assert result == WrapperPod(
        "Failed",
        node="a",
        has_node=True,
        created="2025-12-31T00:00:00Z",
        deleting=True,
        forced=True,
        end_requested_for="2026-01-01T00:00:00Z",
        terminated=(Termination("main", 137, "OOMKilled", "2026-01-02T00:00:00Z"),),
        resources=frozenset({"nvidia.com/gpu", "example.com/nic"}),
        shape=PodShape(
            containers=(
                ContainerShape(Resources(limits={"nvidia.com/gpu": "1", "cpu": "0"})),
                ContainerShape(Resources(requests={"example.com/nic": 2})),
            ),
            init_containers=(ContainerShape(Resources(requests={"cpu": "2"})),),
            overhead={"cpu": "100m"},
        ),
        key=NamespacedName("", "x"),
    )
    assert pod_of(entry("Pod")) == WrapperPod(key=NamespacedName("", "x"))


async def test_other_work_runs_while_many_pods_are_decoded() -> None:
    pods = [entry("Pod", metadata={"name": f"p{number}"}) for number in range(1050)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        assert [pod.key.name for pod in await pods_of(pods)] == [pod.name for pod in pods]
        tasks.cancel_scope.cancel()
    assert turns >= 10


def test_node_is_marked_by_label_or_taint() -> None:
    config = AutopilotConfiguration()
    labels = {"autopilot.ibm.com/gpuhealth": "EVICT"}
    taint = {"key": "autopilot.ibm.com/gpuhealth", "value": "EVICT", "effect": "NoExecute"}
    gpu = frozenset({"nvidia.com/gpu"})
    assert (
        marked_resources(entry("Node", metadata={"labels": labels}), config, ["NoExecute"]) == gpu
    )
    assert marked_resources(entry("Node", spec={"taints": [taint]}), config, ["NoExecute"]) == gpu
    assert not marked_resources(entry("Node", metadata={"labels": labels}), config, ["NoSchedule"])
    assert not marked_resources(entry("Node", spec={}), config, ["NoExecute"])


def test_uids_are_read_only_from_conditions_of_this_controller() -> None:
    def status_with(reason: str, message: str) -> Object:
        condition = {
            "type": "ResourcesDeployed",
            "status": "True",
            "reason": reason,
            "message": message,
        }
        return {"conditions": [condition]}

    status = {
        "componentStatus": [
            status_with("ComponentCreatedSuccessfully", "Job j, uid aaaa-1"),
            status_with(DELETED, "Pod p, uid bbbb-2"),
            status_with("ComponentCreationErrored", "Invalid value: x, uid cccc-3"),
        ]
    }
    assert recorded_uids(wrapper(status=status)) == {"aaaa-1", "bbbb-2"}


def cluster_queue(**limits: str) -> Object:
    resources = [{"name": name, "nominalQuota": "8"} for name in ("cpu", "nvidia.com/gpu")]
    for resource in resources:
        if resource["name"] in limits:
            resource["lendingLimit"] = limits[resource["name"]]
    return {"spec": {"resourceGroups": [{"flavors": [{"name": "f", "resources": resources}]}]}}


def test_lending_limits_are_reduced_by_unschedulable_capacity() -> None:
    def limits(groups: list[Object] | None) -> dict[str, str] | None:
        if groups is None:
            return None
        return {
            item["name"]: item.get("lendingLimit", "")
            for item in groups[0]["flavors"][0]["resources"]
        }

    assert lending_limits(cluster_queue(), {}) is None
    assert limits(lending_limits(cluster_queue(), {"cpu": Decimal("2.5")})) == {
        "cpu": "5500m",
        "nvidia.com/gpu": "",
    }
    assert limits(lending_limits(cluster_queue(), {"cpu": Decimal(9)})) == {
        "cpu": "0",
        "nvidia.com/gpu": "",
    }
    assert lending_limits(cluster_queue(cpu="6"), {"cpu": Decimal(2)}) is None
    assert limits(lending_limits(cluster_queue(cpu="6"), {})) == {"cpu": "", "nvidia.com/gpu": ""}
    assert lending_limits({"spec": {}}, {"cpu": Decimal(2)}) is None


def test_unschedulable_capacity_of_node() -> None:
    config = AutopilotConfiguration()
    capacity = {"capacity": {"cpu": "4", "nvidia.com/gpu": "2", "pods": "10"}}
    marked = entry(
        "Node", metadata={"labels": {"autopilot.ibm.com/gpuhealth": "TESTING"}}, status=capacity
    )
    assert unschedulable_capacity(marked, config) == {"nvidia.com/gpu": 2}
    assert unschedulable_capacity(
        entry("Node", spec={"unschedulable": True}, status=capacity), config
    ) == {
        "cpu": 4,
        "nvidia.com/gpu": 2,
    }
    assert unschedulable_capacity(entry("Node", status=capacity), config) == {}


def test_workload_has_pod_sets_of_all_components() -> None:
    obj = wrapper("Job", "Pod")
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
    created = desired_workload(
        obj, WORKLOAD, WorkloadPriority("kueue.x-k8s.io", "WorkloadPriorityClass", "high", 7)
    )
    assert [(item["name"], item["count"]) for item in created["spec"]["podSets"]] == [
        ("w-0", 1),
        ("w-1", 1),
    ]
    assert created["spec"]["priority"] == 7
    assert created["spec"]["priorityClassRef"]["name"] == "high"
    assert created["metadata"]["name"] == workload_name(obj)
    old = desired_workload(
        obj, GVK("kueue.x-k8s.io", "v1beta1", "Workload"), WorkloadPriority("g", "K", "high", 7)
    )
    assert (old["spec"]["priorityClassName"], old["spec"]["priorityClassSource"]) == ("high", "g/k")


def test_workload_never_has_a_negative_request() -> None:
    obj = wrapper()
    (component,) = obj["spec"]["components"]
    container = {"name": "main", "resources": {"limits": {"cpu": "-100"}}}
    component["template"]["spec"]["containers"] = [container]
    with pytest.raises(PodSetError, match=r'^spec\.components\[0\]\.template\.spec.*value: "-100"'):
        desired_workload(obj, WORKLOAD, WorkloadPriority())


def test_workload_has_room_for_its_status_although_templates_contain_others() -> None:
    claim = {"metadata": {"annotations": {"a": "x" * (700 << 10)}}, "spec": {}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}
    spec = {"containers": [{"name": "main", "image": "i"}], "volumes": [volume]}
    template = {"apiVersion": "v1", "kind": "PodTemplate", "template": {"spec": spec}}
    outer = "template.template"
    paths = [outer, f"{outer}.spec.volumes[0].ephemeral.volumeClaimTemplate"]
    obj = wrapper()
    component = {"template": template, "podSets": [{"path": path} for path in paths]}
    obj["spec"]["components"] = [component]
    with pytest.raises(PodSetError, match="at most 1310720 are allowed, so that its status"):
        desired_workload(obj, WORKLOAD, WorkloadPriority())
    component["podSets"].pop()
    assert len(orjson.dumps(desired_workload(obj, WORKLOAD, WorkloadPriority()))) > 700 << 10


@pytest.mark.parametrize(
    ("value", "expected"),
    [("5m", "5m"), (" 5m ", "5m"), ("soon", None), ("", None), ("9" * 1000 + "s", None)],
)
def test_workload_has_the_grace_period_of_its_appwrapper(value: str, expected: str | None) -> None:
    obj = wrapper("Job")
    obj["metadata"]["annotations"] = {FORCEFUL_DELETION: value}
    created = desired_workload(obj, WORKLOAD, WorkloadPriority())
    assert annotations_of(created).get(FORCEFUL_DELETION) == expected


@pytest.mark.parametrize(
    ("status", "time", "expected"),
    [
        ("True", "2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("False", "2026-01-01T00:00:00Z", None),
        ("True", "then", None),
        ("True", None, None),
    ],
)
def test_eviction_of_a_workload_has_a_time(
    status: str, time: str | None, expected: datetime | None
) -> None:
    condition = {"type": "Evicted", "status": status, "lastTransitionTime": time}
    assert evicted_at({"status": {"conditions": [condition]}}) == expected


def ray_job_wrapper(**spec: Any) -> Object:
    """Return an AppWrapper with a RayJob without workers, and a Pod."""
    obj = wrapper("Pod", "Pod")
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    ray_job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"}}
    obj["spec"]["components"][0] = {
        "template": {**ray_job, "spec": {"rayClusterSpec": {"headGroupSpec": head}, **spec}}
    }
    return obj


def admitted(*numbers: int) -> Object:
    assignments = [{"name": f"w-{number}", "flavors": {"cpu": f"f{number}"}} for number in numbers]
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": assignments}}
    return {"metadata": {"name": "x"}, "status": status}


def flavor(name: str) -> dict[str, Any]:
    return {"nodeLabels": {"flavor": name}}


OWN_SUBMITTER = {"spec": {"containers": [{"name": "own", "image": "own"}]}}


@pytest.mark.parametrize(
    ("spec", "image"),
    [({}, "ray"), ({"submitterPodTemplate": OWN_SUBMITTER}, "own")],
    ids=["default", "own"],
)
def test_submitter_of_rayjob_is_queued_and_runs_in_its_flavor(
    spec: dict[str, Any], image: str
) -> None:
    obj = ray_job_wrapper(**spec)
    pod_sets = desired_workload(obj, WORKLOAD, WorkloadPriority())["spec"]["podSets"]
    images = [item["template"]["spec"]["containers"][0]["image"] for item in pod_sets]
    assert images == ["ray", "busybox", image], (
        "the numbers of other pod sets are those of earlier versions"
    )
    infos = pod_set_infos(obj, admitted(0, 1, 2), flavor)
    assert [[info["nodeSelector"]["flavor"] for info in item] for item in infos] == [
        ["f0", "f2"],
        ["f1"],
    ]
    original = copy.deepcopy(obj)
    created = desired_object(obj, components_of(obj)[0], infos[0], CONFIG)
    assert obj == original
    submitter = created["spec"]["submitterPodTemplate"]
    assert submitter["spec"]["nodeSelector"] == {"flavor": "f2"}
    assert submitter["spec"]["containers"][0]["image"] == image
    head = created["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    assert head["metadata"]["labels"]["workload.codeflare.dev/appwrapper"] == "w"
    assert "workload.codeflare.dev/appwrapper" not in submitter["metadata"]["labels"], (
        "its Job replaces it"
    )


def test_submitter_that_is_declared_first_gets_its_own_flavor() -> None:
    obj = ray_job_wrapper(submitterPodTemplate=OWN_SUBMITTER)
    paths = [
        "template.spec.submitterPodTemplate",
        "template.spec.rayClusterSpec.headGroupSpec.template",
    ]
    obj["spec"]["components"][0]["podSets"] = [{"path": path} for path in paths]
    infos = pod_set_infos(obj, admitted(0, 1, 2), flavor)
    assert [info["nodeSelector"]["flavor"] for info in infos[0]] == ["f2", "f0"]


@pytest.mark.parametrize(
    "spec", [{}, {"submitterPodTemplate": OWN_SUBMITTER}], ids=["default", "own"]
)
def test_workload_of_an_earlier_version_has_no_submitter(spec: dict[str, Any]) -> None:
    obj = ray_job_wrapper(**spec)
    infos = pod_set_infos(obj, admitted(0, 1), flavor)
    assert [info.get("nodeSelector") for item in infos for info in item if info] == [
        {"flavor": "f0"},
        {"flavor": "f1"},
    ]
    created = desired_object(obj, components_of(obj)[0], infos[0], CONFIG)
    assert ("submitterPodTemplate" in created["spec"]) == bool(spec)


def test_pod_set_infos_are_derived_from_admission() -> None:
    obj = wrapper("Job")
    assignment = {
        "name": "w-0",
        "flavors": {"cpu": "gold", "memory": "gold"},
        "topologyAssignment": {"levels": []},
    }
    checks = [{"name": "c", "podSetUpdates": [{"name": "w-0", "nodeSelector": {"zone": "a"}}]}]
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "admissionChecks": checks,
    }
    flavors = {"gold": {"nodeLabels": {"pool": "gold"}, "tolerations": [{"key": "gold"}]}}
    ((info,),) = pod_set_infos(obj, {"metadata": {"name": "x"}, "status": status}, flavors.get)
    assert info["nodeSelector"] == {"pool": "gold", "zone": "a"}
    assert info["tolerations"] == [{"key": "gold"}]
    assert info["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    with pytest.raises(LookupError, match="gold"):
        pod_set_infos(obj, {"metadata": {"name": "x"}, "status": status}, {}.get)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"required-topology": "rack", "preferred-topology": "zone"}, {"required": "rack"}),
        ({"preferred-topology": "zone", "unconstrained-topology": "true"}, {"preferred": "zone"}),
        ({"unconstrained-topology": "true"}, {"unconstrained": True}),
        (
            {"slice-required-topology": "rack", "slice-size": "2"},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2},
        ),
        ({"slice-required-topology": "rack"}, {}),
        (
            {"required-topology": "rack", "group-name": "g"},
            {"required": "rack", "podSetGroupName": "g"},
        ),
        ({"unconstrained-topology": "true", "group-name": "g"}, {"unconstrained": True}),
        ({}, {}),
    ],
)
def test_topology_request_is_that_of_kueue(annotations: dict[str, str], expected: Object) -> None:
    named = {f"kueue.x-k8s.io/podset-{name}": value for name, value in annotations.items()}
    assert _topology({}, named) == expected


@pytest.mark.parametrize("size", ["0", "-1", "two", "2147483648", "9" * 5000])
def test_invalid_size_of_slices_is_an_error(size: str) -> None:
    prefix = "kueue.x-k8s.io/podset-slice"
    with pytest.raises(PodSetError, match=r"annotation kueue\.x-k8s\.io/podset-slice-size: "):
        _topology({}, {f"{prefix}-required-topology": "rack", f"{prefix}-size": size})


@pytest.mark.parametrize(("request_", "is_added"), [({}, True), ({"required": "rack"}, False)])
def test_placed_pods_without_a_request_get_kueues_annotation(
    request_: Object, is_added: bool
) -> None:
    assignment = {"name": "w-0", "topologyAssignment": {"levels": []}}
    workload = {
        "metadata": {"name": "x"},
        "spec": {"podSets": [{"name": "w-0", "topologyRequest": request_}]},
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}},
    }
    ((info,),) = pod_set_infos(wrapper("Job"), workload, {}.get)
    added = info["annotations"].get("kueue.x-k8s.io/podset-unconstrained-topology")
    assert added == ("true" if is_added else None)
    assert info["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]


@pytest.mark.parametrize(
    ("count", "expected"), [("3", {"subGroupCount": 3}), ("9" * 5000, {}), ("-1", {}), ("x", {})]
)
def test_count_of_subgroups_is_bounded(count: str, expected: Object) -> None:
    assert _topology({"annotations": {SUB_GROUP_COUNT: count}}, {}) == expected
