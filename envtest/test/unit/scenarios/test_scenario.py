"""Scenario files: what they contain, and the errors about what they must not contain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envtest.formats import bounded_file
from envtest.scenarios.scenario import Scenario, ScenarioError


def pod(name: str = "p", uid: str = "u", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": uid, **metadata}, "spec": {}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"node": []}, "node: unknown field: must be one of nodes, pods"),
        ({"nodes": {}}, "nodes: {}: must be a list of at most 10000 items"),
        ({"nodes": [{}]}, "nodes[0].name: null: must be a non-empty string"),
        (
            {"nodes": [{"name": "A"}]},
            'nodes[0].name: "A": must be the name of a node: a lowercase RFC 1123 subdomain',
        ),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "nodes: a: must be the name of one node only"),
        (
            {"nodes": [{"name": "a", "count": 0}]},
            "nodes[0].count: 0: must be an integer from 1 to 5000",
        ),
        (
            {"nodes": [{"name": "a", "capacity": {"cpu": "x"}}]},
            'nodes[0].capacity.cpu: "x": must be a quantity of at least 0',
        ),
        (
            {"nodes": [{"name": "a", "taints": [{"key": "k", "effect": "Odd"}]}]},
            'nodes[0].taints[0].effect: "Odd": must be one of NoSchedule, PreferNoSchedule, NoExecute',
        ),
        (
            {"nodes": [{"name": "a", "labels": {"x y": "1"}}]},
            'nodes[0].labels: Invalid value: "x y": name part must',
        ),
        (
            {"nodes": [{"name": "a", "taints": [{"key": "x y", "effect": "NoSchedule"}]}]},
            'nodes[0].taints[0].key: Invalid value: "x y": name part must',
        ),
        ({"pods": [5]}, "pods[0]: 5: must be a mapping"),
        (
            {"pods": [{"match": {"labels": {"a": 1}}}]},
            "pods[0].match.labels.a: 1: must be a string",
        ),
        (
            {"pods": [{"match": {"start": [0]}}]},
            "pods[0].match.start: [0]: must be a list of numbers from 1",
        ),
        (
            {"pods": [{"startAfter": -1}]},
            "pods[0].startAfter: -1: must be a number of seconds from 0 to 3153600000",
        ),
        ({"pods": [{"ready": "no"}]}, 'pods[0].ready: "no": must be true or false'),
        (
            {"pods": [{"containers": {"c": [{"exitCode": 256}]}}]},
            "pods[0].containers.c[0].exitCode: 256: must be an integer from 0 to 255",
        ),
        (
            {"pods": [{"exec": [{"command": "ls"}]}]},
            'pods[0].exec[0].command: "ls": must be a list of at most',
        ),
        (
            {"pods": [{"logs": {"c": [{"txt": ""}]}}]},
            "pods[0].logs.c[0].txt: unknown field: must be one of after, text",
        ),
        (
            {"pods": [{"ports": {"80": "10.0.0.1:80"}}]},
            'pods[0].ports.80: "10.0.0.1:80": must be a TCP address of this machine, such as 127.0.0.1:8080',
        ),
        (
            {"pods": [{"ports": {"web": "127.0.0.1:1"}}]},
            "pods[0].ports.web: must be a port number from 1 to 65535",
        ),
    ],
)
def test_errors_name_path_value_and_what_is_allowed(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario(document)
    assert str(error.value).startswith(message)


def test_errors_of_a_file_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("pods: [{image: {reason: Odd}}]")
    with pytest.raises(
        ScenarioError,
        match=r'^.*/s\.yaml: pods\[0\]\.image\.reason: "Odd": must be one of ErrImagePull',
    ):
        Scenario(file)
    file.write_text("nodes:\n- name: a\n capacity: {}\n")
    with pytest.raises(ScenarioError, match=r"^.*/s\.yaml:3: yaml: did not find expected key$"):
        Scenario(file)
    file.write_text("[]")
    with pytest.raises(ScenarioError, match="must be a mapping"):
        Scenario(file)
    monkeypatch.setattr(bounded_file, "MAX_BYTES", 1000)
    with pytest.raises(OSError, match="larger than 1000 bytes: '/dev/zero'"):
        Scenario("/dev/zero")


def test_nodes_by_count_and_the_default_node() -> None:
    scenario = Scenario(
        {
            "nodes": [
                {
                    "name": "gpu",
                    "count": 2,
                    "capacity": {"nvidia.com/gpu": 4},
                    "unschedulable": True,
                }
            ]
        }
    )
    assert [node.name for node in scenario.nodes] == ["gpu-1", "gpu-2"]
    assert scenario.nodes[0].allocatable["nvidia.com/gpu"] == "4"
    assert [node.name for node in Scenario().nodes] == ["envtest"]
    assert Scenario({"nodes": []}).nodes == ()


def test_ports_can_be_numbers() -> None:
    ports: dict[Any, str] = {80: "127.0.0.1:8080", "81": "[::1]:8081"}
    assert Scenario({"pods": [{"ports": ports}]}).ports_of(pod()) == {
        80: ("127.0.0.1", 8080),
        81: ("::1", 8081),
    }


def test_first_rule_that_sets_a_field_applies() -> None:
    rules = [
        {"match": {"name": "p*", "owner": {"kind": "Job"}}, "startAfter": 1},
        {"match": {"labels": {"app": "web"}}, "startAfter": 2, "stopAfter": 3},
        {"ready": False},
    ]
    scenario = Scenario({"pods": rules})
    owner = {"kind": "Job", "name": "j", "controller": True}
    behavior = scenario.behavior_of(pod(labels={"app": "web"}, ownerReferences=[owner]))
    assert (behavior.start_after, behavior.stop_after, behavior.ready) == (1, 3, False)
    assert scenario.behavior_of(pod(labels={"app": "web"})).start_after == 2
    annotated = scenario.behavior_of(
        pod(annotations={"envtest.cfo/phase": "Failed", "envtest.cfo/exit-code": "4"})
    )
    assert annotated.runs is not None
    assert annotated.runs["*"][0].exit_code == 4


def test_rules_for_the_nth_pod() -> None:
    scenario = Scenario({"pods": [{"match": {"name": "p*", "start": [1, 3]}, "startAfter": 9}]})
    started = []
    for number in range(4):
        each = pod(f"p{number}", uid=str(number))
        scenario.start(each)
        scenario.start(each)
        started.append(scenario.behavior_of(each).start_after)
    assert started == [9, None, 9, None]
    scenario.start(other := pod("q", uid="q"))
    assert scenario.behavior_of(other).start_after is None
    copy = scenario.fork()
    copy.start(pod("p4", uid="4"))
    assert scenario._counts == [4], "a copy counts on its own"
