"""Replay of the recorded AppWrapper scenarios: the controllers lead each AppWrapper through the recorded states.

The sequences of (phase, retries, conditions without times) are compared. The test sets the status of pods, as the
recorder did. Objects are created as the Go operator's webhooks persisted them. If the controllers differ
deliberately, :data:`DIFFERENCES` describes how, and docs/differences.md why.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from cfo.api.appwrapper.inference import infer_pod_sets
from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL, Phase
from cfo.api.appwrapper.podsets import pod_template_at
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.config.document import parse
from cfo.runtime.client.errors import APIError, UnknownKind
from cfo.runtime.objects.kinds import JOB, NODE
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    is_deleting,
    labels_of,
    set_controller_owner,
)
from test.support.appwrapper_environment import (
    AppWrapperEnvironment,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    state,
)
from test.support.appwrapper_recordings import PERIOD_FACTOR, recorded_crds, recreatable
from test.support.clocks import SteppedClock
from test.support.go_operator import assert_go_operator_can_continue
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN, appwrapper_cases, load_appwrapper
from test.support.sweeps import sampled

KUEUE_KINDS = ("ClusterQueue", "LocalQueue", "ResourceFlavor")
"""Kinds that only Kueue reads."""

DIFFERENCES = {
    "autopilot-evict": "the message contains the node names, and the pause starts after the reset",
    "config-failure-grace": "the pause starts after the reset",
    "component-deleted": "the message names the missing component",
    "component-kind-withdrawn": "the message names the missing component and the kind that is no longer served",
    "config-ceiling": "the condition reports the annotation that is above the ceiling",
    "create-exists": "the existing object is kept, and the message has its kind and its controller",
    "failed-kept-for-a-while": "there is one pause",
    "exit-code-both": "the condition reports the annotations that cannot be parsed",
    "failed-pod-replaced-in-grace": "each change of the pods is observed immediately",
    "malformed-annotations": "the condition reports the annotations that cannot be parsed",
    "suspend-forceful": "the pod is observed immediately, and deleted by force after the grace period",
    "success-two-pods": "the time to live starts with the success",
}
"""Scenarios in which the controllers deliberately differ from the Go operator, with the differences."""

State = tuple[Any, ...]


def configuration_with_other_periods(recording: dict[str, Any]) -> AppWrapperConfiguration:
    """Return the recorded configuration with other periods."""
    document = {"appwrapper": recording["config"]["appwrapper"]}
    config = parse(yaml.safe_dump(document)).configuration.appwrapper
    tolerance = config.fault_tolerance
    if "Config" not in recording["config"]["appwrapper"]:
        return config
    periods = {
        name: getattr(tolerance, name) * PERIOD_FACTOR
        for name in tolerance.__struct_fields__
        if name != "retry_limit"
    }
    return structs.replace(config, fault_tolerance=structs.replace(tolerance, **periods))


class Scenario:
    """Replays one recorded scenario."""

    def __init__(self, environment: AppWrapperEnvironment, recording: dict[str, Any]) -> None:
        self.environment = environment
        self.recording = recording
        self.namespace: str = recording["namespace"]
        self.wait_count = 0

    async def replay(self) -> None:
        await self.environment.create_namespace(self.namespace)
        for step in self.recording["steps"]:
            if "do" in step:
                await self.perform(step["do"], step.get("result") or step["do"]["result"])
            elif "wait" in step:
                await self.wait_for_recorded_state(step["wait"])
            elif step.get("observe") in ("at the end", "suspended", "after the time to live"):
                await self.compare_pods(step["objects"])
            elif step.get("observe") == "components":
                await self.compare_components(step["objects"])

    async def perform(self, action: dict[str, Any], result: dict[str, Any]) -> None:
        client = self.environment.client
        if action["op"] == "create":
            if result["code"] < 400 and action["object"]["kind"] not in KUEUE_KINDS:
                await self.create(recreatable(action["object"]))
            return
        if action["kind"] == "Workload":  # Kueue suspends or resumes the AppWrapper of the Workload
            await self.environment.set_suspend(
                not action["patch"]["spec"]["active"],
                *self.recording["phaseSequence"],
                self.namespace,
            )
            await self.environment.wait_for_phase(
                "Running" if action["patch"]["spec"]["active"] else "Suspended",
                **self.wrapper_key(),
            )
            await self.environment.wait_until_idle()
            return
        gvk = GVK.parse(action["apiVersion"], action["kind"])
        namespaced = gvk != NODE and gvk.kind != "CustomResourceDefinition"
        key = NamespacedName(self.namespace if namespaced else "", action["objectName"])
        if action["op"] == "delete":
            grace = (action.get("options") or {}).get("gracePeriodSeconds")
            await client.delete(gvk, key, grace_period_seconds=grace)
        else:
            await client.patch(
                gvk, key, action["patch"], subresource=action.get("subresource") or ""
            )
        if gvk.kind == "CustomResourceDefinition" and action["op"] == "delete":
            await eventually(
                partial(self.is_empty, key.name.partition(".")[2]), "the caches of a withdrawn kind"
            )
        await self.environment.wait_until_idle()

    async def is_empty(self, group: str) -> bool:
        """Return whether the caches of the kinds of ``group`` are empty: a watch ends some time after its kind."""
        assert self.environment.manager is not None
        informers = [
            item for item in self.environment.manager.cache.informers if item.gvk.group == group
        ]
        return not any(list(item.reader.entries()) for item in informers)

    def wrapper_key(self) -> dict[str, str]:
        """Return name and namespace of the scenario's AppWrapper."""
        (name,) = self.recording["phaseSequence"]
        return {"name": name, "namespace": self.namespace}

    async def owner_of_pods(self) -> Object:
        """Return the AppWrapper, or the Job in one of a queue, which admitted pods of components only."""
        owner = await self.environment.get(APPWRAPPER, **self.wrapper_key())
        if QUEUE_NAME_LABEL in labels_of(owner):
            for component in owner["status"]["componentStatus"]:
                if component["kind"] == JOB.kind:
                    return await self.environment.get(JOB, component["name"], self.namespace)
        return owner

    async def create(self, obj: Object) -> None:
        if obj["kind"] == "Pod" and APPWRAPPER_LABEL in labels_of(obj):
            # The recorder's pods have only the label, which does not prove that they belong to the AppWrapper, or that
            # they use its quota.
            owner = await self.owner_of_pods()
            obj = set_controller_owner(obj, owner)
            if owner["kind"] == JOB.kind:
                obj["spec"]["containers"] = owner["spec"]["template"]["spec"]["containers"]
        is_queued = "kueue.x-k8s.io/queue-name" in labels_of(obj)
        if is_queued:
            obj["spec"]["suspend"] = True
        await self.environment.client.create(obj)
        await self.environment.wait_until_idle()
        admitted = next(
            (
                item
                for item in self.recorded_objects("AppWrapper")
                if not item["spec"].get("suspend")
            ),
            None,
        )
        phases = [item["phase"] for item in next(iter(self.recording["phaseSequence"].values()))]
        if is_queued and "Running" in phases:
            wrapper = await self.environment.get(APPWRAPPER, **self.wrapper_key())
            wrapper["spec"]["suspend"] = False
            if admitted is not None:
                wrapper["spec"]["components"] = admitted["spec"]["components"]
            await self.environment.client.update(wrapper)
            await self.environment.wait_for_phase("Running", **self.wrapper_key())
            await self.environment.wait_until_idle()

    def recorded_objects(self, kind: str) -> list[Object]:
        """Return the recorded objects of a kind."""
        return [
            item
            for step in self.recording["steps"]
            for item in step.get("objects") or ()
            if item.get("kind") == kind
        ]

    async def wait_for_recorded_state(self, wait: dict[str, Any]) -> None:
        name = wait["name"]
        if wait["phase"] == ["gone"]:
            await self.environment.wait_until_deleted(name, self.namespace)
            return

        self.wait_count += 1
        is_retry = self.recording["name"] == "config-failure-grace" and self.wait_count > 1

        def holds(obj: Object) -> bool:
            phase, retries, conditions = state(obj)
            if is_retry and not retries:  # the recorder only observed the phase after the retry
                return False
            kind, status = wait.get("condition") or ("", "")
            return phase in wait["phase"] and (
                not kind or any(item[:2] == (kind, status) for item in conditions)
            )

        await self.environment.wait_until(holds, str(wait), name=name, namespace=self.namespace)
        await self.environment.wait_until_idle()

    async def compare_components(self, recorded: list[Object]) -> None:
        for item in recorded:
            gvk = GVK.parse(item["apiVersion"], item["kind"])
            observed = await self.environment.get(gvk, item["metadata"]["name"], self.namespace)
            assert injected(observed) == injected(item), observed

    async def compare_pods(self, recorded: list[Object]) -> None:
        expected = {item["metadata"]["name"] for item in recorded if item["kind"] == "Pod"}
        if self.recording["name"] == "create-exists":
            expected = {"theirs"}

        async def check() -> bool:
            observed = await self.environment.client.list(
                GVK("", "v1", "Pod"), namespace=self.namespace
            )
            names = {pod["metadata"]["name"] for pod in observed if not is_deleting(pod)}
            if names != expected:
                await self.environment.wait_until_idle()
                await self.environment.skip_to_next_timer()
            assert names == expected, f"pods {names}, recorded {expected}"
            return True

        await eventually(check, "the recorded pods")


def injected(obj: Object) -> Any:
    """Return the parts of a component into which the controller injects."""
    owners = [
        {key: value for key, value in owner.items() if key != "uid"}
        for owner in obj["metadata"]["ownerReferences"]
    ]
    templates = [pod_template_at(obj, pod_set["path"]) for pod_set in infer_pod_sets(obj)]
    return obj["metadata"]["labels"], owners, [_injected(template) for template in templates]


def _injected(template: Object) -> Any:
    metadata, spec = template.get("metadata") or {}, template["spec"]
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if "controller-uid" not in key
    }
    own = [
        item
        for item in spec.get("tolerations") or ()
        if not item.get("key", "").startswith("node.kubernetes.io")
    ]
    names = ("nodeSelector", "affinity", "schedulingGates", "schedulerName")
    return labels, metadata.get("annotations"), own, {name: spec.get(name) for name in names}


def comparable_condition(condition: tuple[str, str, str, str]) -> tuple[str, str, str, str]:
    """Return a condition with periods and generated names replaced in its message.

    What this operator adds to messages is removed: what failed, when it is retried or why not, and what still exists.
    """
    if condition[:3] in (
        ("Unhealthy", "True", "FoundFailedPods"),
        ("DeletingResources", "True", "DeletionInitiated"),
    ):
        return (*condition[:3], "")
    message = re.sub(
        r"\b(\d+m)?\d+(\.\d+)?m?s\b", "PERIOD", re.sub("gen-[a-z0-9]+", "gen-X", condition[3])
    )
    message = re.sub(
        "; (retry [0-9]+ of [0-9]+|not retried, .*|.* failed as well|next attempt at .*)$",
        "",
        message,
    )
    message = re.sub("(Found [0-9]+ failed components): .*", r"\1", message)
    message = re.sub("([0-9]+ pods pending; .* pods succeeded); .*", r"\1", message)
    return (*condition[:3], message)


def comparable(item: State) -> State:
    """A state with its conditions as :func:`comparable_condition` has them, and why no pods of a failure are ready."""
    if item[0] == "Failed" and ("PodsReady", "False", "Resuming", "Suspend is false") in item[2]:
        item = with_condition(item, "PodsReady", "False", "Failed", "The AppWrapper has failed")
    return (*item[:2], tuple(map(comparable_condition, item[2])))


def distinct_states(states: list[State]) -> list[State]:
    """Return the states in comparable form without repetitions."""
    observed: list[State] = []
    for item in map(comparable, states):
        if not observed or observed[-1] != item:
            observed.append(item)
    return observed


def with_condition(
    item: State, kind: str, status: str, reason: str, message: str | None = None
) -> State:
    """Return ``item`` with the condition ``kind`` replaced; its message is kept if none is given."""
    return (
        *item[:2],
        tuple(
            (kind, status, reason, known[3] if message is None else message)
            if known[0] == kind
            else known
            for known in item[2]
        ),
    )


def with_node_names(states: list[State]) -> list[State]:
    """Replace the recorded node list by node names, and insert the pause after the reset."""
    message = "Workload contains pods using NoExecute resources on Nodes: gpu-node-a"
    with_names = [
        with_condition(item, "Unhealthy", "True", "AutopilotNoExecute", message)
        if any(known[2] == "AutopilotNoExecute" for known in item[2])
        else item
        for item in states
    ]
    return with_pause_after_reset(with_names)


def with_pause_after_reset(states: list[State]) -> list[State]:
    """Insert the state of the pause, which starts when the reset is complete."""
    (index,) = [
        i
        for i, item in enumerate(states)
        if i and item[0] == "Resuming" and states[i - 1][0] == "Resetting"
    ]
    pause = with_condition(
        ("Resetting", *states[index][1:]),
        "ResourcesDeployed",
        "False",
        "Resetting",
        "Resources deleted for resetting AppWrapper",
    )
    return [*states[:index], pause, *states[index:]]


def with_one_pause(states: list[State]) -> list[State]:
    """Keep the states of one pause and one deletion."""
    reasons = [
        {known[0]: known[2] for known in item[2]}.get("DeletingResources") for item in states
    ]
    pause, initiated = reasons.index("DeletionPaused"), reasons.index("DeletionInitiated")
    done = max(index for index, reason in enumerate(reasons) if reason == "DeletionComplete")
    return [*states[: pause + 1], states[initiated], states[done]]


def with_missing_component(states: list[State], addition: str) -> list[State]:
    """Add the missing component, and its kind if that is no longer served, to the message."""
    adjusted = []
    for item in states:
        known = {each[0]: each for each in item[2]}.get("Unhealthy")
        if known is not None and known[2] == "MissingComponent":
            message = f"{known[3]}; {addition}"
            item = with_condition(item, "Unhealthy", "True", "MissingComponent", message)
        adjusted.append(item)
    return adjusted


def with_annotation_problems(states: list[State], problems: tuple[str, ...]) -> list[State]:
    """Add the annotations that cannot be parsed to ``ResourcesDeployed``, because the resources ignore them."""
    return [
        (*phase, tuple(comparable_condition(with_problems(item, problems)) for item in conditions))
        for *phase, conditions in states
    ]


def with_problems(
    condition: tuple[str, str, str, str], problems: tuple[str, ...]
) -> tuple[str, str, str, str]:
    """Return ``condition`` with ``problems`` in its message if it is the one that reports them."""
    if not problems or condition[:3] != ("ResourcesDeployed", "True", "Resuming"):
        return condition
    return (*condition[:3], "; ".join((condition[3], *problems)))


def without_deletion(states: list[State]) -> list[State]:
    """Remove the states of a deletion, because no component exists, and add the kind of the existing object."""
    adjusted = []
    for item in states:
        if ("DeletingResources", "True", "DeletionInitiated", "") in item[2]:
            continue
        known = {each[0]: each for each in item[2]}.get("Unhealthy")
        if known is not None and known[2] == "CreateFailed":
            message = f"{known[3]}: Pod theirs has no controller"
            item = with_condition(item, "Unhealthy", "True", "CreateFailed", message)
        adjusted.append(item)
    return adjusted


def with_ready_pods_before_suspension(states: list[State]) -> list[State]:
    """Set ``PodsReady``: the controller observes the running pod before the suspension, and its end after it."""
    message = "1 pods running; 0 pods succeeded"
    running = states.index(next(item for item in states if item[0] == "Running"))
    after = [
        with_condition(item, "PodsReady", "True", "SufficientPodsReady", message)
        for item in states[running:]
    ]
    return [
        *states[: running + 1],
        *after[:-1],
        with_condition(after[-1], "PodsReady", "False", "Suspended", ""),
    ]


def with_deleted_pod_before_replacement(states: list[State]) -> list[State]:
    """Insert the state between the deletion of the failed pod and its replacement."""
    index = next(
        index
        for index, item in enumerate(states)
        if any(known[:3] == ("Unhealthy", "False", "FoundNoFailedPods") for known in item[2])
    )
    between = with_condition(states[index], "PodsReady", "False", "Resuming", "Suspend is false")
    return [*states[:index], between, *states[index:]]


ADJUSTMENTS: dict[str, Callable[[list[State]], list[State]]] = {
    "autopilot-evict": with_node_names,
    "component-deleted": partial(with_missing_component, addition="missing: Service svc"),
    "component-kind-withdrawn": partial(
        with_missing_component,
        addition="missing: Thing t; the API server no longer serves Thing (example.com/v1)",
    ),
    "config-failure-grace": with_pause_after_reset,
    "create-exists": without_deletion,
    "failed-kept-for-a-while": with_one_pause,
    "failed-pod-replaced-in-grace": with_deleted_pod_before_replacement,
    "suspend-forceful": with_ready_pods_before_suspension,
}


async def create_nodes(environment: AppWrapperEnvironment) -> None:
    """Create the nodes of the recordings."""
    for name, labels in (
        ("gpu-node-a", {}),
        ("gpu-node-b", {"autopilot.ibm.com/gpuhealth": "TESTING"}),
        ("quiet-node", {}),
    ):
        await environment.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )


def recorded_scenarios(configuration: str) -> list[str]:
    """Return the recorded scenarios of phases, injection, settings and Kueue for a configuration."""
    observed = [case.values[0] for case in appwrapper_cases()]
    return [
        str(case)
        for case in observed
        if str(case).startswith(f"{configuration}/")
        and load_appwrapper(str(case))["area"] in ("phases", "injection", "config", "kueue")
    ]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recordings next to the repository")
@pytest.mark.parametrize("configuration", ["default", "inline", "kueue", "tuned"])
@pytest.mark.sweep
async def test_states_equal_recorded_states(configuration: str) -> None:
    failures: dict[str, str] = {}
    scenarios = recorded_scenarios(configuration)
    config = configuration_with_other_periods(load_appwrapper(scenarios[0]))
    if configuration == "inline":  # the Go operator ignores these settings
        config = AppWrapperConfiguration(enabled=True)
    config = structs.replace(config, require_admission_webhook=False)  # no webhooks are registered
    async with (
        start_appwrapper_environment(*recorded_crds()) as environment,
        run_appwrapper_controllers(environment, config, clock=SteppedClock()),
    ):
        await create_nodes(environment)
        for case in sampled(scenarios):
            recording = load_appwrapper(case)
            scenario = recording["name"]
            try:
                await Scenario(environment, copy.deepcopy(recording)).replay()
                await environment.wait_until_idle()
                # A list of pods may still run, after which a deletion continues.
                await eventually(partial(states_are_equal, environment, recording, config))
                for name in recording["phaseSequence"]:
                    for snapshot in environment.snapshots[recording["namespace"], name]:
                        assert_go_operator_can_continue(snapshot)
            except (AssertionError, APIError, UnknownKind) as error:
                failures[scenario] = str(error)[:3000]
    assert not failures, "\n\n".join(f"{case}: {error}" for case, error in failures.items())


def without_initial_suspension(states: list[State], wrapper: Object) -> list[State]:
    """Remove the initial ``Suspended`` state of an AppWrapper that does not start suspended."""
    starts_suspended = wrapper["spec"].get("suspend") or "kueue.x-k8s.io/queue-name" in (
        wrapper["metadata"].get("labels") or {}
    )
    return [
        item
        for number, item in enumerate(states)
        if starts_suspended or number > 1 or item != ("Suspended", 0, ())
    ]


def compare_states(
    environment: AppWrapperEnvironment, recording: dict[str, Any], config: AppWrapperConfiguration
) -> None:
    """Compare the observed states of each AppWrapper with the recorded ones."""
    wrappers = {
        step["do"]["object"]["metadata"]["name"]: step["do"]["object"]
        for step in recording["steps"]
        if "do" in step and step["do"].get("object", {}).get("kind") == "AppWrapper"
    }
    for name in recording["phaseSequence"]:
        recorded = distinct_states(
            [state(snapshot) for snapshot in recording["snapshots"] if snapshot.get("name") == name]
        )
        recorded = without_initial_suspension(recorded, wrappers[name])
        problems = Settings.of(wrappers[name], config.fault_tolerance).problems
        has_problems = ("malformed-annotations", "exit-code-both", "config-ceiling")
        assert bool(problems) == (recording["name"] in has_problems)
        expected = ADJUSTMENTS.get(recording["name"], lambda states: states)(
            with_annotation_problems(recorded, problems)
        )
        observed = distinct_states(environment.states[recording["namespace"], name])
        if (
            expected[-1][0] == Phase.RESETTING
        ):  # the recording ends in the pause, after which there is a retry
            observed = observed[: len(expected)]
        missing = [item for item in expected if item not in observed]
        assert observed == expected, (
            f"\nobserved {[item[0] for item in observed]}, expected {[item[0] for item in expected]}\n"
            + "".join(f"  missing {item}\n" for item in missing)
            + "".join(f"  new     {item}\n" for item in observed if item not in expected)
        )


async def states_are_equal(
    environment: AppWrapperEnvironment, recording: dict[str, Any], config: AppWrapperConfiguration
) -> bool:
    """Return true if :func:`compare_states` finds no difference."""
    compare_states(environment, recording, config)
    return True


def test_each_difference_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert set(ADJUSTMENTS) <= set(DIFFERENCES)
    for scenario in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
