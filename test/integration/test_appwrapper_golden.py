"""The recorded lives of AppWrappers, played to this controller: what becomes of each, and through which states.

Compared are the sequences of (phase, retries, conditions), times aside; the pods are played by the test, as they were
by the recorder. An object is fed in as the Go operator's webhooks persisted it. Where this controller differs on
purpose, :data:`DIFFERENCES` says how, and docs/differences.md why.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.appwrapper import APPWRAPPER, infer_pod_sets, pod_template_at
from cfo.config import AppWrapperConfiguration, parse
from cfo.controllers.appwrapper.settings import Settings
from cfo.runtime.client.errors import APIError, UnknownKind
from cfo.runtime.kinds import NODE
from cfo.runtime.objects import GVK, NamespacedName, Object, is_deleting, labels_of
from test.support.appwrapper_environment import Watched, operating, state, watched_world
from test.support.appwrapper_recordings import _SHORTER, prepared, recorded_crds
from test.support.go_operator import assert_go_operator_can_continue
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN, appwrapper_cases, load_appwrapper

QUEUEING = ("ClusterQueue", "LocalQueue", "ResourceFlavor")
"""What only Kueue looks at."""


DIFFERENCES = {
    "autopilot-evict": "the nodes are named in words, and the pause counts from the reset",
    "config-failure-grace": "the pause counts from the reset",
    "component-kind-withdrawn": "the message says that the kind is not served any more",
    "create-exists": "the other object stays",
    "failed-kept-for-a-while": "the pause runs once",
    "exit-code-both": "likewise",
    "failed-pod-replaced-in-grace": "each change of the pods is noticed at once",
    "malformed-annotations": "the condition names the annotations that cannot be read",
    "suspend-forceful": "the pod is noticed at once, and forced when the grace period is over",
    "success-two-pods": "the time to live counts from the success",
}


State = tuple[Any, ...]


def configuration_of(recording: dict[str, Any]) -> AppWrapperConfiguration:
    """The recorded configuration, with shorter periods."""
    document = {"appwrapper": recording["config"]["appwrapper"]}
    config = parse(yaml.safe_dump(document)).configuration.appwrapper
    tolerance = config.fault_tolerance
    if "Config" not in recording["config"]["appwrapper"]:
        return config
    shorter = {
        name: getattr(tolerance, name) * _SHORTER for name in type(tolerance).model_fields if name != "retry_limit"
    }
    return config.model_copy(update={"fault_tolerance": tolerance.model_copy(update=shorter)})


class Scenario:
    """One recording, being played."""

    def __init__(self, here: Watched, recording: dict[str, Any]) -> None:
        self.here = here
        self.recording = recording
        self.namespace: str = recording["namespace"]
        self.waits = 0

    async def play(self) -> None:
        await self.here.create_namespace(self.namespace)
        for step in self.recording["steps"]:
            if "do" in step:
                await self.do(step["do"], step.get("result") or step["do"]["result"])
            elif "wait" in step:
                await self.wait(step["wait"])
            elif step.get("observe") in ("at the end", "suspended", "after the time to live"):
                await self.compare_pods(step["objects"])
            elif step.get("observe") == "components":
                await self.compare_components(step["objects"])

    async def do(self, do: dict[str, Any], result: dict[str, Any]) -> None:
        client = self.here.client
        if do["op"] == "create":
            if result["code"] < 400 and do["object"]["kind"] not in QUEUEING:
                await self.create(prepared(do["object"]))
            return
        if do["kind"] == "Workload":  # the queue obeys, and so the AppWrapper is suspended or resumed
            await self.here.suspend(not do["patch"]["spec"]["active"], *self.recording["phaseSequence"], self.namespace)
            await self.here.phase("Running" if do["patch"]["spec"]["active"] else "Suspended", **self.named())
            await self.here.wait_until_idle()
            return
        gvk = GVK.parse(do["apiVersion"], do["kind"])
        namespaced = gvk != NODE and gvk.kind != "CustomResourceDefinition"
        key = NamespacedName(self.namespace if namespaced else "", do["objectName"])
        if do["op"] == "delete":
            grace = (do.get("options") or {}).get("gracePeriodSeconds")
            await client.delete(gvk, key, grace_period_seconds=grace)
        else:
            await client.patch(gvk, key, do["patch"], subresource=do.get("subresource") or "")
        await self.here.wait_until_idle()

    def named(self) -> dict[str, str]:
        """The AppWrapper of the scenario."""
        (name,) = self.recording["phaseSequence"]
        return {"name": name, "namespace": self.namespace}

    async def create(self, obj: Object) -> None:
        queued = "kueue.x-k8s.io/queue-name" in labels_of(obj)
        if queued:
            obj["spec"]["suspend"] = True
        await self.here.client.create(obj)
        await self.here.wait_until_idle()
        admitted = next((item for item in self.observed("AppWrapper") if not item["spec"].get("suspend")), None)
        phases = [item["phase"] for item in next(iter(self.recording["phaseSequence"].values()))]
        if queued and "Running" in phases:
            there = await self.here.get(APPWRAPPER, **self.named())
            there["spec"]["suspend"] = False
            if admitted is not None:
                there["spec"]["components"] = admitted["spec"]["components"]
            await self.here.client.update(there)
            await self.here.phase("Running", **self.named())
            await self.here.wait_until_idle()

    def observed(self, kind: str) -> list[Object]:
        """The objects of a kind that the recorder saw."""
        return [
            item for step in self.recording["steps"] for item in step.get("objects") or () if item.get("kind") == kind
        ]

    async def wait(self, wait: dict[str, Any]) -> None:
        name = wait["name"]
        if wait["phase"] == ["gone"]:
            await self.here.gone(name, self.namespace)
            return

        self.waits += 1
        retried = self.recording["name"] == "config-failure-grace" and self.waits > 1

        def holds(obj: Object) -> bool:
            phase, retries, conditions = state(obj)
            if retried and not retries:  # the recorder was slow enough to meet the second time alone
                return False
            kind, status = wait.get("condition") or ("", "")
            return phase in wait["phase"] and (not kind or any(item[:2] == (kind, status) for item in conditions))

        await self.here.when(holds, str(wait), name=name, namespace=self.namespace)
        await self.here.wait_until_idle()

    async def compare_components(self, recorded: list[Object]) -> None:
        for item in recorded:
            gvk = GVK.parse(item["apiVersion"], item["kind"])
            found = await self.here.get(gvk, item["metadata"]["name"], self.namespace)
            assert injected(found) == injected(item), found

    async def compare_pods(self, recorded: list[Object]) -> None:
        expected = {item["metadata"]["name"] for item in recorded if item["kind"] == "Pod"}
        if self.recording["name"] == "create-exists":
            expected = {"theirs"}

        async def look() -> bool:
            found = await self.here.client.list(GVK("", "v1", "Pod"), namespace=self.namespace)
            names = {pod["metadata"]["name"] for pod in found if not is_deleting(pod)}
            assert names == expected, f"pods {names}, recorded {expected}"
            return True

        await eventually(look, "the recorded pods")


def injected(obj: Object) -> Any:
    """All that a controller put into a component, and what it found there."""
    owners = [
        {key: value for key, value in owner.items() if key != "uid"} for owner in obj["metadata"]["ownerReferences"]
    ]
    templates = [pod_template_at(obj, pod_set["path"]) for pod_set in infer_pod_sets(obj)]
    return obj["metadata"]["labels"], owners, [_injected(template) for template in templates]


def _injected(template: Object) -> Any:
    metadata, spec = template.get("metadata") or {}, template["spec"]
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if "controller-uid" not in key}
    own = [item for item in spec.get("tolerations") or () if not item.get("key", "").startswith("node.kubernetes.io")]
    names = ("nodeSelector", "affinity", "schedulingGates", "schedulerName")
    return labels, metadata.get("annotations"), own, {name: spec.get(name) for name in names}


def plain_condition(condition: tuple[str, str, str, str]) -> tuple[str, str, str, str]:
    """A condition without what depends on how long a period is, and without generated names."""
    message = re.sub(r"\b\d+(\.\d+)?m?s\b", "PERIOD", re.sub("gen-[a-z0-9]+", "gen-X", condition[3]))
    return (*condition[:3], message)


def plain(item: State) -> State:
    """A state with its conditions as :func:`plain_condition` has them."""
    return (*item[:2], tuple(map(plain_condition, item[2])))


def distinct(states: list[State]) -> list[State]:
    found: list[State] = []
    for item in map(plain, states):
        if not found or found[-1] != item:
            found.append(item)
    return found


def with_condition(item: State, kind: str, status: str, reason: str, message: str | None = None) -> State:
    """``item`` with another condition ``kind``; its message is kept if none is given."""
    return (
        *item[:2],
        tuple(
            (kind, status, reason, known[3] if message is None else message) if known[0] == kind else known
            for known in item[2]
        ),
    )


def evicted(states: list[State]) -> list[State]:
    """The nodes in words."""
    said = "Workload contains pods using NoExecute resources on Nodes: gpu-node-a"
    named = [
        with_condition(item, "Unhealthy", "True", "AutopilotNoExecute", said)
        if any(known[2] == "AutopilotNoExecute" for known in item[2])
        else item
        for item in states
    ]
    return paused(named)


def paused(states: list[State]) -> list[State]:
    """A pause that counts from the reset is still to come when the reset is over."""
    (index,) = [i for i, item in enumerate(states) if i and item[0] == "Resuming" and states[i - 1][0] == "Resetting"]
    pause = with_condition(
        ("Resetting", *states[index][1:]),
        "ResourcesDeployed",
        "False",
        "Resetting",
        "Resources deleted for resetting AppWrapper",
    )
    return [*states[:index], pause, *states[index:]]


def kept_once(states: list[State]) -> list[State]:
    """One pause, then one deletion."""
    reasons = [{known[0]: known[2] for known in item[2]}.get("DeletingResources") for item in states]
    pause, initiated = reasons.index("DeletionPaused"), reasons.index("DeletionInitiated")
    done = max(index for index, reason in enumerate(reasons) if reason == "DeletionComplete")
    return [*states[: pause + 1], states[initiated], states[done]]


def withdrawn(states: list[State]) -> list[State]:
    message = (
        "Only found 0 deployed components, but was expecting 1; "
        "the API server does not serve Thing (example.com/v1) any more"
    )
    return [
        with_condition(item, "Unhealthy", "True", "MissingComponent", message) if item[0] == "Failed" else item
        for item in states
    ]


def told_of_annotations(states: list[State], problems: tuple[str, ...]) -> list[State]:
    """``ResourcesDeployed`` says which annotations cannot be read, since the resources are deployed without them."""
    return [
        (*phase, tuple(plain_condition(told(item, problems)) for item in conditions)) for *phase, conditions in states
    ]


def told(condition: tuple[str, str, str, str], problems: tuple[str, ...]) -> tuple[str, str, str, str]:
    """The condition with ``problems`` in its message, if it is the one that says them."""
    if not problems or condition[:3] != ("ResourcesDeployed", "True", "Resuming"):
        return condition
    return (*condition[:3], "; ".join((condition[3], *problems)))


def nothing_deleted(states: list[State]) -> list[State]:
    """There is nothing of ours to be deleted."""
    return [item for item in states if ("DeletingResources", "True", "DeletionInitiated", "") not in item[2]]


def noticed_ready(states: list[State]) -> list[State]:
    """That the pod runs is noticed before the suspension, and so it is over after that."""
    message = "1 pods running; 0 pods succeeded"
    running = states.index(next(item for item in states if item[0] == "Running"))
    after = [with_condition(item, "PodsReady", "True", "SufficientPodsReady", message) for item in states[running:]]
    return [*states[: running + 1], *after[:-1], with_condition(after[-1], "PodsReady", "False", "Suspended", "")]


def noticed_gone(states: list[State]) -> list[State]:
    """That the failed pod is gone is noticed before there is another."""
    index = next(
        index
        for index, item in enumerate(states)
        if any(known[:3] == ("Unhealthy", "False", "FoundNoFailedPods") for known in item[2])
    )
    between = with_condition(states[index], "PodsReady", "False", "Resuming", "Suspend is false")
    return [*states[:index], between, *states[index:]]


ADJUST: dict[str, Callable[[list[State]], list[State]]] = {
    "autopilot-evict": evicted,
    "component-kind-withdrawn": withdrawn,
    "config-failure-grace": paused,
    "create-exists": nothing_deleted,
    "failed-kept-for-a-while": kept_once,
    "failed-pod-replaced-in-grace": noticed_gone,
    "suspend-forceful": noticed_ready,
}


async def prepare_nodes(here: Watched) -> None:
    """The nodes of the recordings."""
    for name, labels in (
        ("gpu-node-a", {}),
        ("gpu-node-b", {"autopilot.ibm.com/gpuhealth": "TESTING"}),
        ("quiet-node", {}),
    ):
        await here.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})


def cases(configuration: str) -> list[str]:
    """The recorded scenarios of lives, of what is injected, and of settings."""
    found = [case.values[0] for case in appwrapper_cases()]
    return [
        str(case)
        for case in found
        if str(case).startswith(f"{configuration}/")
        and load_appwrapper(str(case))["area"] in ("phases", "injection", "config", "kueue")
    ]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recordings beside the repository")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("configuration", ["default", "inline", "kueue", "tuned"])
async def test_lives_go_as_they_were_recorded(configuration: str) -> None:
    failed: dict[str, str] = {}
    config = configuration_of(load_appwrapper(cases(configuration)[0]))
    if configuration == "inline":  # the Go program does not read these settings
        config = AppWrapperConfiguration(enabled=True)
    async with watched_world(*recorded_crds()) as here, operating(here, config):
        await prepare_nodes(here)
        for case in cases(configuration):
            recording = load_appwrapper(case)
            scenario = recording["name"]
            try:
                await Scenario(here, copy.deepcopy(recording)).play()
                await here.wait_until_idle()
                compare(here, recording, config)
                for name in recording["phaseSequence"]:
                    for shot in here.shots[recording["namespace"], name]:
                        assert_go_operator_can_continue(shot)
            except (AssertionError, APIError, UnknownKind) as error:
                failed[scenario] = str(error)[:3000]
    assert not failed, "\n\n".join(f"{case}: {error}" for case, error in failed.items())


def begun_at_once(states: list[State], wrapper: Object) -> list[State]:
    """Without the moment of being suspended before anything else, where nothing holds the AppWrapper."""
    held = wrapper["spec"].get("suspend") or "kueue.x-k8s.io/queue-name" in (wrapper["metadata"].get("labels") or {})
    return [item for number, item in enumerate(states) if held or number > 1 or item != ("Suspended", 0, ())]


def compare(here: Watched, recording: dict[str, Any], config: AppWrapperConfiguration) -> None:
    wrappers = {
        step["do"]["object"]["metadata"]["name"]: step["do"]["object"]
        for step in recording["steps"]
        if "do" in step and step["do"].get("object", {}).get("kind") == "AppWrapper"
    }
    for name in recording["phaseSequence"]:
        recorded = distinct([state(shot) for shot in recording["snapshots"] if shot.get("name") == name])
        recorded = begun_at_once(recorded, wrappers[name])
        problems = Settings.of(wrappers[name], config.fault_tolerance).problems
        assert bool(problems) == (recording["name"] in ("malformed-annotations", "exit-code-both"))
        expected = ADJUST.get(recording["name"], lambda states: states)(told_of_annotations(recorded, problems))
        found = distinct(here.states[recording["namespace"], name])
        missing = [item for item in expected if item not in found]
        assert found == expected, (
            f"\nfound {[item[0] for item in found]}, expected {[item[0] for item in expected]}\n"
            + "".join(f"  missing {item}\n" for item in missing)
            + "".join(f"  new     {item}\n" for item in found if item not in expected)
        )


def test_each_difference_is_written_down() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert set(ADJUST) <= set(DIFFERENCES)
    for scenario in DIFFERENCES:
        assert f"/{scenario}`" in text, scenario
