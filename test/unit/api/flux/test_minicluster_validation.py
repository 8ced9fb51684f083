"""Validation of MiniClusters: the rules, and the recorded inputs of upstream's operator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.flux.validation import error_message, new_errors
from cfo.api.flux.validation.containers import MAX_CONTAINERS
from cfo.api.flux.validation.minicluster import MAX_NAME, MAX_SCRIPTS, validate_minicluster
from cfo.runtime import Object

SHARED = Path(__file__).parents[5] / "shared"
OVER = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
ABOVE = 'Invalid value: "2": must be less than or equal to cpu limit of 1'
LABEL = "lower-case letters, digits and '-', with a letter or digit at both ends"


def minicluster(**spec: Any) -> Object:
    """Return a valid MiniCluster with these fields of its spec."""
    return {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": {"size": 2, "containers": [{"image": "ubuntu", "command": "hostname"}], **spec},
    }


def runner(**fields: Any) -> dict[str, Any]:
    """Return the spec of a MiniCluster with a single container with these fields."""
    return {"containers": [{"image": "ubuntu", "command": "hostname", **fields}]}


def sidecar(**fields: Any) -> dict[str, Any]:
    """Return the spec of a MiniCluster with a sidecar with these fields."""
    return {"containers": [{"runFlux": True, "command": "hostname"}, {"name": "side", **fields}]}


def volumes(**volume: Any) -> dict[str, Any]:
    """Return the spec of a MiniCluster with one volume."""
    return runner(volumes={"data": volume})


def pod(**fields: Any) -> dict[str, Any]:
    return {"pod": fields}


def flux(**fields: Any) -> dict[str, Any]:
    return {"flux": fields}


def messages(obj: Object) -> list[str]:
    return [str(error) for error in validate_minicluster(obj)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # sizes
        ({"size": 0}, "spec.size: Invalid value: 0: must be between 1 and 100000, inclusive"),
        ({"size": -1}, "spec.size: Invalid value: -1: must be between 1 and 100000, inclusive"),
        (
            {"size": 100_001},
            "spec.size: Invalid value: 100001: must be between 1 and 100000, inclusive",
        ),
        (
            {"size": 3, "maxSize": 2},
            "spec.maxSize: Invalid value: 2: must not be less than size (3)",
        ),
        (
            {"maxSize": -1},
            "spec.maxSize: Invalid value: -1: must be between 0 and 100000, inclusive",
        ),
        ({"minSize": 3}, "spec.minSize: Invalid value: 3: must not be greater than maxSize (2)"),
        (
            {"minSize": 3, "maxSize": 4},
            "spec.minSize: Invalid value: 3: must not be greater than size (2)",
        ),
        (
            {"minSize": 5, "maxSize": 4},
            "spec.minSize: Invalid value: 5: must not be greater than maxSize (4)",
        ),
        (
            {"tasks": -1},
            "spec.tasks: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            {"backoffLimit": -1},
            "spec.backoffLimit: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            {"deadlineSeconds": -5},
            "spec.deadlineSeconds: Invalid value: -5: must be between 0 and 9223372036854775807, inclusive",
        ),
        # containers
        (
            {"containers": []},
            "spec.containers: Required value: must contain the container that runs Flux",
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            "spec.containers: Invalid value: 0 containers have runFlux set to true; exactly one must",
        ),
        (
            {"containers": [{"runFlux": True}, {"runFlux": True}]},
            "spec.containers: Invalid value: 2 containers have runFlux set to true; exactly one must",
        ),
        (
            {"containers": [{"name": "a"}] * (MAX_CONTAINERS + 1)},
            "spec.containers: Too many: 101: must have at most 100 items",
        ),
        (
            sidecar(name=""),
            "spec.containers[1].name: Required value: only the container that runs Flux may have no name",
        ),
        (
            sidecar(name="Side"),
            f'spec.containers[1].name: Invalid value: "Side": must be at most 63 {LABEL}',
        ),
        (sidecar(name="sample"), 'spec.containers[1].name: Duplicate value: "sample"'),
        (sidecar(name="flux-view"), 'spec.containers[1].name: Duplicate value: "flux-view"'),
        (
            sidecar(ports=[0]),
            "spec.containers[1].ports[0]: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (sidecar(ports=[80, 80]), "spec.containers[1].ports[1]: Duplicate value: 80"),
        (
            runner(ports=[70000]),
            "spec.containers[0].ports[0]: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            runner(launcher=True, batch=True),
            "spec.containers[0].batch: Forbidden: must not be set together with launcher",
        ),
        (
            runner(commands={"script": "a"}),
            "spec.containers[0].commands.script: Forbidden: must not be set together with command",
        ),
        (
            runner(imagePullPolicy="Sometimes"),
            (
                'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": '
                'supported values: "Always", "IfNotPresent", "Never"'
            ),
        ),
        (runner(image=""), "spec.containers[0].image: Required value"),
        (
            runner(environment={"A=B": "c"}),
            "spec.containers[0].environment: Invalid value: \"A=B\": must be printable ASCII characters without '='",
        ),
        (
            runner(environment={"A": "b"}, secrets={"A": {"name": "s", "key": "k"}}),
            'spec.containers[0].secrets[A]: Duplicate value: "A"',
        ),
        (
            runner(secrets={"A": {"name": "", "key": "k"}}),
            "spec.containers[0].secrets[A].name: Required value",
        ),
        (
            runner(command="x" * (MAX_SCRIPTS + 1)),
            (
                f"spec.containers: Invalid value: all commands together have {MAX_SCRIPTS + 1} bytes; "
                f"at most {MAX_SCRIPTS} are allowed"
            ),
        ),
        (
            {
                "containers": [
                    {"runFlux": True, "command": "'"},
                    {"name": "side"},
                    {"name": "other"},
                ],
                "flux": {"environment": {"A": "'" * (MAX_SCRIPTS // 50)}},
            },
            (
                f"spec.containers: Invalid value: all commands together have {5 + 3 * (2 + MAX_SCRIPTS // 50 * 17)} "
                f"bytes; at most {MAX_SCRIPTS} are allowed"
            ),
        ),
        (
            pod(labels={f"a{i}": "b" for i in range(10_000)}),
            "spec: Invalid value: must have at most 10000 values, at all levels",
        ),
        # volumes
        (volumes(claimName="c"), "spec.containers[0].volumes[data].path: Required value"),
        (volumes(), "spec.containers[0].volumes[data].path: Required value"),
        (
            volumes(path="/opt/software/", hostPath="/x"),
            'spec.containers[0].volumes[data].path: Duplicate value: "/opt/software/"',
        ),
        (
            runner(volumes={"a": {"emptyDir": True}, "b": {"emptyDir": True, "path": "/b"}}),
            'spec.containers[0].volumes[b].path: Duplicate value: "/b"',
        ),
        (
            runner(volumes={"sample-entrypoint": {"path": "/a"}}),
            'spec.containers[0].volumes: Invalid value: "sample-entrypoint": the name is used by the operator',
        ),
        (
            {
                "containers": [
                    {"runFlux": True, "volumes": {"v": {"path": "/a", "hostPath": "/x"}}},
                    {"name": "b", "volumes": {"v": {"path": "/b", "hostPath": "/y"}}},
                ]
            },
            'spec.containers[1].volumes: Invalid value: "v": must have the same source in every container',
        ),
        (
            volumes(path="/c", configMapName="c", items={"a": "../b"}),
            "spec.containers[0].volumes[data].items[a]: Invalid value: \"../b\": must be a relative path without '..'",
        ),
        (
            volumes(emptyDir=True, emptyDirSizeLimit="much"),
            (
                'spec.containers[0].volumes[data].emptyDirSizeLimit: Invalid value: "much": '
                "must be a quantity such as 500Mi or 4Gi"
            ),
        ),
        # services
        (
            {"services": [{"image": "a"}]},
            "spec.services[0].name: Required value: only the container that runs Flux may have no name",
        ),
        (
            {"services": [{"name": "a", "commands": {"workerPre": "x"}}]},
            "spec.services[0].commands.workerPre: Forbidden: containers of the service pod run no Flux broker",
        ),
        (
            {"services": [{"name": "a"}, {"name": "a"}]},
            'spec.services[1].name: Duplicate value: "a"',
        ),
        # flux
        (
            flux(bursting={"hostlist": "a", "clusters": [{"name": "b", "size": 1}]}),
            "spec.flux.bursting.hostlist: Forbidden: must not be set together with clusters",
        ),
        (
            flux(logLevel=8),
            "spec.flux.logLevel: Invalid value: 8: must be between 0 and 7, inclusive",
        ),
        (
            flux(connectTimeout="soon"),
            'spec.flux.connectTimeout: Invalid value: "soon": must be a duration such as 500ms, 5s or 1.5m',
        ),
        (
            flux(topology="ring"),
            (
                'spec.flux.topology: Unsupported value: "ring": '
                'supported values: "flat", "kary:K", "binomial", "mincrit", "mincrit:K", "custom"'
            ),
        ),
        (
            flux(scheduler={"queuePolicy": "lottery"}),
            (
                'spec.flux.scheduler.queuePolicy: Unsupported value: "lottery": '
                'supported values: "fcfs", "easy", "conservative", "hybrid"'
            ),
        ),
        (
            flux(environment={"a.b": "c"}),
            (
                'spec.flux.environment: Invalid value: "a.b": '
                "must be letters, digits and '_', and must not begin with a digit"
            ),
        ),
        (
            flux(container={"mountPath": "/mnt/$(x)"}),
            (
                'spec.flux.container.mountPath: Invalid value: "/mnt/$(x)": '
                "must be an absolute path of letters, digits, '.', '_' and '-', without '..'"
            ),
        ),
        (
            flux(container={"name": "wait-0"}),
            'spec.flux.container.name: Invalid value: "wait-0": the name is used by the operator',
        ),
        (
            flux(container={"name": "sample"}),
            (
                'spec.flux.container.name: Invalid value: "sample": '
                "must not be the name of the MiniCluster, which the container that runs Flux has"
            ),
        ),
        # network, Job and pods
        (
            {"network": {"headlessName": "a.b"}},
            f'spec.network.headlessName: Invalid value: "a.b": must be at most 63 {LABEL}',
        ),
        (
            {"network": {"headlessName": "9brokers"}},
            (
                'spec.network.headlessName: Invalid value: "9brokers": '
                "must begin with a letter, because it is the name of a Service"
            ),
        ),
        (
            pod(restartPolicy="Always"),
            'spec.pod.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"',
        ),
        (
            pod(resources={"cpu": 1}),
            "spec.pod.resources: Forbidden: the overhead of pods needs a runtimeClassName that defines it",
        ),
        (
            runner(resources=OVER),
            f"spec.containers[0].resources.requests: {ABOVE}",
        ),
        (
            {"services": [{"name": "a", "resources": OVER}]},
            f"spec.services[0].resources.requests: {ABOVE}",
        ),
        (
            flux(container={"resources": OVER}),
            f"spec.flux.container.resources.requests: {ABOVE}",
        ),
        (
            pod(tolerations=[{"operator": "Equal", "value": "a"}]),
            'spec.pod.tolerations[0].operator: Invalid value: "Equal": must be Exists if key is empty',
        ),
        (
            pod(nodeAffinity={"zone": []}),
            "spec.pod.nodeAffinity[zone]: Invalid value: []: zone: In needs at least one value",
        ),
    ],
)
def test_invalid_spec_is_reported_with_path_and_value(spec: dict[str, Any], expected: str) -> None:
    assert messages(minicluster(**spec)) == [expected]


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 100_000},
        {"maxSize": 0, "minSize": 0},
        {"size": 2, "maxSize": 4, "minSize": 2},
        {"tasks": 0, "backoffLimit": 0, "deadlineSeconds": 0},
        {"containers": [{"runFlux": False}]},
        sidecar(ports=[80, 443], commands={"script": "a"}, command="b"),
        runner(ports=[80, 80]),
        volumes(path="/data"),
        volumes(emptyDir=True, emptyDirMedium="memory", emptyDirSizeLimit="64Mi"),
        flux(
            topology="kary:2",
            connectTimeout="",
            scheduler={"queuePolicy": "easy"},
            container={"mountPath": "/opt/f"},
        ),
        pod(resources={"cpu": 1}, runtimeClassName="kata"),
        pod(
            tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]
        ),
        {"services": [{"name": "a", "commands": {"post": "x"}}]},
    ],
)
def test_valid_spec_is_accepted(spec: dict[str, Any]) -> None:
    assert messages(minicluster(**spec)) == []


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"name": "n" * MAX_NAME}, []),
        (
            {"name": "9lives"},
            [
                'metadata.name: Invalid value: "9lives": must begin with a letter, because it is the name of a Service'
            ],
        ),
        (
            {"generateName": "2024-"},
            [
                (
                    'metadata.generateName: Invalid value: "2024-": must be at most 47 '
                    "lower-case letters, digits and '-', beginning with a letter"
                )
            ],
        ),
        (
            {"name": "n" * (MAX_NAME + 1)},
            [f'metadata.name: Invalid value: "{"n" * 53}": must be at most 52 {LABEL}'],
        ),
        (
            {"name": "my.cluster"},
            [f'metadata.name: Invalid value: "my.cluster": must be at most 52 {LABEL}'],
        ),
        ({"generateName": "job-"}, []),
        (
            {"generateName": "a." + "b" * 10},
            [
                (
                    'metadata.generateName: Invalid value: "a.bbbbbbbbbb": must be at most 47 '
                    "lower-case letters, digits and '-', beginning with a letter"
                )
            ],
        ),
    ],
)
def test_name_must_allow_names_of_all_objects(
    metadata: dict[str, str], expected: list[str]
) -> None:
    assert messages({**minicluster(), "metadata": metadata}) == expected


@pytest.mark.parametrize(
    ("names", "headless", "expected"),
    [
        (["web", "side"], "brokers", []),
        (["web"], "", []),
        (["w" * 56], "", []),
        (
            ["w" * 57],
            "",
            ["must be at most 56 characters, because its Service may be named NAME-CONTAINER"],
        ),
        (["9web"], "", ["must begin with a letter, because it is the name of a Service"]),
        (
            ["web"],
            "web",
            ["must not equal network.headlessName, because both are names of Services"],
        ),
        (
            ["web"],
            "sample-web",
            [
                "its Service may be named sample-web, which is the name of the Service of network.headlessName"
            ],
        ),
        (
            ["sample-web", "web"],
            "",
            [
                "its Service may be named sample-web, which is the name of the Service of container sample-web"
            ],
        ),
    ],
)
def test_services_of_one_cluster_must_have_valid_and_different_names(
    names: list[str], headless: str, expected: list[str]
) -> None:
    sidecars = [{"name": name, "ports": [80]} for name in names]
    containers = [{"runFlux": True, "command": "hostname"}, *sidecars]
    errors = validate_minicluster(
        minicluster(containers=containers, network={"headlessName": headless})
    )
    assert [error.detail for error in errors] == expected
    without_ports = [{**container, "ports": []} for container in containers]
    assert messages(minicluster(containers=without_ports, network={"headlessName": headless})) == []


def test_errors_that_existed_before_do_not_block_updates() -> None:
    old = minicluster(size=3, maxSize=2)
    assert new_errors(validate_minicluster, old, minicluster(size=3, maxSize=2, tasks=4)) == []
    (error,) = new_errors(validate_minicluster, old, minicluster(size=3, maxSize=2, tasks=-1))
    assert error.field == "spec.tasks"


def test_message_has_all_errors_and_fits_into_an_event() -> None:
    errors = validate_minicluster(minicluster(size=0, tasks=-1))
    assert error_message(errors) == (
        "[spec.size: Invalid value: 0: must be between 1 and 100000, inclusive, "
        "spec.tasks: Invalid value: -1: must be between 0 and 2147483647, inclusive]"
    )
    long = validate_minicluster(minicluster(network={"headlessName": "A" * 5000}))
    assert len(error_message(long)) == 1024


def recorded_inputs() -> Iterator[tuple[str, Object]]:
    """Yield each MiniCluster that the recordings contain as an input that the API server accepted."""
    for path in sorted((SHARED / "golden/flux").glob("*/*.yaml")):
        recording = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        for step in recording.get("steps") or ():
            action = step.get("do") or {}
            obj = action.get("object")
            if not isinstance(obj, dict) or (step.get("result") or {}).get("code") != 201:
                continue
            if obj.get("kind") == "MiniCluster":
                yield f"{path.parent.name}/{path.stem}/{obj['metadata'].get('name')}", obj


STRICTER = {
    "lifecycle/invalid-sizes/min-negative",
    "lifecycle/invalid-sizes/tasks-negative",
    "lifecycle/pod-overhead/flux-sample",
}
"""Inputs that upstream's operator runs although they make no sense (docs/differences-flux.md)."""

REFUSED_BY_UPSTREAM = (
    "lifecycle/becomes-valid/",
    "lifecycle/invalid-",
    "lifecycle/names/",
    "lifecycle/restart/invalid",
)


@pytest.mark.skipif(not (SHARED / "golden/flux").exists(), reason="no recordings")
def test_recorded_inputs_that_upstream_runs_are_valid() -> None:
    invalid = {name for name, obj in recorded_inputs() if validate_minicluster(obj)}
    assert invalid >= STRICTER
    assert {
        name for name in invalid - STRICTER if not name.startswith(REFUSED_BY_UPSTREAM)
    } == set()


@pytest.mark.skipif(not (SHARED / "flux").exists(), reason="no examples")
def test_examples_of_upstream_are_valid() -> None:
    found = [
        obj
        for path in (SHARED / "flux").glob("current-*/examples/**/*.yaml")
        for obj in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
        if obj and obj["kind"] == "MiniCluster"
    ]
    assert len(found) > 20
    assert [messages(obj) for obj in found if messages(obj)] == []
