"""Pods, validated as pure functions, and the subresources that change a part of them."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.builtins.catalog import all_resources
from envtest.builtins.pod_resize import (
    ephemeral_container_change_errors,
    keep_resources,
    resize_errors,
)
from envtest.builtins.pod_resources import qos_class, set_pod_resource_defaults
from envtest.builtins.pod_rules import pod_only_errors
from envtest.builtins.pod_status_rules import pod_status_errors
from envtest.builtins.pod_updates import annotation_change_errors
from envtest.builtins.pods import PodStrategy, merge_label_keys, template_defaults
from envtest.builtins.resource_names import is_extended
from envtest.schema.shaping import copy_json

SYSCTLS = [{"name": "net.x"}, {"name": "BAD"}, {"name": "net.x"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SECCOMP = "container.seccomp.security.alpha.kubernetes.io/c0"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/c0"
DEVICES = [{"name": "v", "devicePath": "/v"}]
WINDOWS = "Forbidden: cannot be set for a windows pod"


def pod(containers: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod with defaults; ``containers`` get a name and an image."""
    spec["containers"] = [
        {"name": f"c{number}", "image": "i", **each}
        for number, each in enumerate(containers or [{}])
    ]
    template_defaults(spec)
    return {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": spec,
        "status": {"qosClass": qos_class(spec)},
    }


def errors(containers: list[dict[str, Any]] | None = None, **spec: Any) -> list[str]:
    return [str(each) for each in pod_only_errors(pod(containers, **spec), new=True)]


def resources(**parts: Any) -> list[dict[str, Any]]:
    return [{"resources": parts}]


RESOURCES = "spec.containers[0].resources"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"limits": {"x.y/gpu": "2"}, "requests": {"x.y/gpu": "2"}}, []),
        (
            {"limits": {"x.y/gpu": "2"}, "requests": {"x.y/gpu": "1"}},
            [f'{RESOURCES}.requests: Invalid value: "1": must be equal to x.y/gpu limit of 2'],
        ),
        (
            {"requests": {"x.y/gpu": "2"}},
            [
                f"{RESOURCES}.limits: Required value: Limit must be set for non overcommitable resources"
            ],
        ),
        (
            {"limits": {"hugepages-2Mi": "4Mi"}},
            [f"{RESOURCES}: Forbidden: HugePages require cpu or memory"],
        ),
        (
            {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}},
            [
                (
                    f'{RESOURCES}.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of '
                    "hugepages-2Mi"
                )
            ],
        ),
        (
            {"limits": {"x.y/gpu": "500m"}},
            [f'{RESOURCES}.limits[x.y/gpu]: Invalid value: "500m": must be an integer'],
        ),
        (
            {"claims": [{"name": "h"}, {"name": "g"}, {"name": "g"}]},
            [
                f'{RESOURCES}.claims[0]: Not found: "h": must be one of the names in pod.spec.resourceClaims: g',
                f'{RESOURCES}.claims[2]: Duplicate value: "g"',
            ],
        ),
        (
            {
                "claims": [
                    {"name": "g", "request": "a"},
                    {"name": "g", "request": "b"},
                    {"name": "g"},
                ]
            },
            [f'{RESOURCES}.claims[2]: Duplicate value: "g"'],
        ),
    ],
)
def test_resources_of_containers(parts: dict[str, Any], expected: list[str]) -> None:
    claims = [{"name": "g", "resourceClaimName": "x"}]
    assert errors(resources(**parts), resourceClaims=claims) == expected


def test_extended_resources_have_a_domain_and_short_names() -> None:
    assert is_extended("x.y/gpu")
    assert not is_extended("cpu")
    assert not is_extended("kubernetes.io/x")
    assert not is_extended("x.y/" + "g" * 64)


MANY = [
    {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}},
    {"resources": {"requests": {"cpu": "2"}}},
]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"requests": {"cpu": "3"}}, []),
        (
            {"requests": {"cpu": "2"}},
            [
                (
                    'spec.resources.requests[cpu]: Invalid value: "2": must be greater than or equal to aggregate '
                    "container requests of 3"
                )
            ],
        ),
        (
            {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}},
            [
                'spec.resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 2',
                (
                    'spec.resources.containers[0][cpu].limits: Invalid value: "3": must be less than or equal to pod '
                    "limits of 2"
                ),
            ],
        ),
        (
            {"requests": {"cpu": "3", "ephemeral-storage": "1"}},
            [
                (
                    'spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported '
                    'values: "cpu", "hugepages-", "memory"'
                )
            ],
        ),
    ],
)
def test_resources_of_the_pod_hold_those_of_its_containers(
    parts: dict[str, Any], expected: list[str]
) -> None:
    assert errors(MANY, resources=parts) == expected


def test_negative_grace_period_is_one_second_but_not_in_templates() -> None:
    resource = next(each for each in all_resources() if (each.group, each.kind) == ("", "Pod"))
    obj = {"spec": {"containers": [], "terminationGracePeriodSeconds": -1}, "status": {}}
    PodStrategy(resource).set_defaults(obj)
    assert obj["spec"]["terminationGracePeriodSeconds"] == 1
    template: dict[str, Any] = {"containers": [], "terminationGracePeriodSeconds": -1}
    template_defaults(template)
    assert template["terminationGracePeriodSeconds"] == -1


def test_resources_of_the_pod_are_completed() -> None:
    spec = pod(MANY, resources={"limits": {"cpu": "4", "memory": "1Gi"}})["spec"]
    spec["initContainers"] = [
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        {"resources": {"requests": {"cpu": "3100m"}}},
    ]
    set_pod_resource_defaults(spec)
    assert spec["resources"]["requests"] == {"cpu": "3600m", "memory": "1Gi"}
    only_requests = {"containers": [], "resources": {"requests": {"cpu": "1"}}}
    set_pod_resource_defaults(only_requests)
    assert only_requests["resources"] == {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{}]}, "BestEffort"),
        ({"containers": [{"resources": {"limits": {"x.y/gpu": "1"}}}]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, "Burstable"),
        (
            {"containers": [{}], "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}},
            "Burstable",
        ),
        (
            {
                "containers": [{}],
                "resources": {part: {"cpu": "1", "memory": "1"} for part in ("limits", "requests")},
            },
            "Guaranteed",
        ),
    ],
)
def test_qos_class(spec: dict[str, Any], expected: str) -> None:
    assert qos_class(spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"os": {"name": "plan9"}},
            ['spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'],
        ),
        (
            {"os": {"name": "windows"}, "securityContext": {"runAsUser": 1}, "hostPID": True},
            [f"spec.securityContext.runAsUser: {WINDOWS}", f"spec.hostPID: {WINDOWS}"],
        ),
        (
            {
                "hostNetwork": True,
                "securityContext": {
                    "sysctls": [{"name": "net.x"}, {"name": "BAD"}, {"name": "net.x"}]
                },
            },
            [
                (
                    'spec.securityContext.sysctls[0].name: Invalid value: "net.x": may not be specified when '
                    "'hostNetwork' is true"
                ),
                (
                    'spec.securityContext.sysctls[1].name: Invalid value: "BAD": must have at most 253 characters and '
                    r"match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
                ),
                'spec.securityContext.sysctls[2].name: Duplicate value: "net.x"',
                (
                    'spec.securityContext.sysctls[2].name: Invalid value: "net.x": may not be specified when '
                    "'hostNetwork' is true"
                ),
            ],
        ),
        (
            {"hostUsers": False, "hostIPC": True},
            ["spec.HostIPC: Forbidden: when `hostUsers` is false"],
        ),
        (
            {
                "hostUsers": False,
                "initContainers": [{"name": "i", "image": "i", "volumeDevices": DEVICES}],
            },
            [
                'spec.initContainers[0].volumeDevices[0].name: Not found: "v"',
                "spec.initContainers[0].volumeDevices: Forbidden: when `hostUsers` is false",
            ],
        ),
        ({"hostnameOverride": "a.b.example.com"}, []),
        ({"hostnameOverride": f"{'a' * 60}.b.c"}, []),
        (
            {
                "hostnameOverride": f"{'a' * 60}.b.cd",
                "setHostnameAsFQDN": True,
                "hostNetwork": True,
            },
            [
                "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
                "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
                "spec.hostnameOverride: Too long: may not be more than 64 bytes",
            ],
        ),
        (
            {"hostnameOverride": ""},
            [
                (
                    'spec.hostnameOverride: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower '
                    "case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character "
                    "(e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                )
            ],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            [
                "spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"
            ],
        ),
        (
            {"dnsPolicy": "None"},
            ["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        ),
        ({"dnsConfig": {"searches": [".", "_a.b.", "a_b"]}}, []),
        (
            {"resourceClaims": [{"name": "g"}]},
            [
                (
                    'spec.resourceClaims[0]: Invalid value: {"Name":"g","ResourceClaimName":null,'
                    '"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, '
                    "`resourceClaimTemplateName`"
                )
            ],
        ),
        (
            {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        ),
        (
            {
                "affinity": {
                    "podAffinity": {REQUIRED: [{"matchLabelKeys": ["a"], "topologyKey": "t"}]}
                }
            },
            [
                (
                    f"spec.affinity.podAffinity.{REQUIRED}[0].matchLabelKeys: Forbidden: "
                    "must not be specified when labelSelector is not set"
                )
            ],
        ),
        (
            {"securityContext": {"seLinuxChangePolicy": "MountOption"}},
            [
                (
                    'spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": '
                    'supported values: "Recursive"'
                )
            ],
        ),
    ],
)
def test_fields_of_the_pod(spec: dict[str, Any], expected: list[str]) -> None:
    assert errors(**spec) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"restartPolicy": "OnFailure"}, []),
        (
            {"resizePolicy": [{"resourceName": "gpu", "restartPolicy": "NotRequired"}]},
            ['.resizePolicy: Unsupported value: "gpu": supported values: "cpu", "memory"'],
        ),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
            [
                (
                    ".lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than "
                    "terminationGracePeriodSeconds (30)"
                )
            ],
        ),
        (
            {
                "env": [
                    {
                        "name": "E",
                        "valueFrom": {
                            "resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}
                        },
                    }
                ]
            },
            [
                (
                    '.env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only '
                    "divisor's values 1m and 1 are supported with the cpu resource"
                )
            ],
        ),
        (
            {
                "env": [
                    {
                        "name": "E",
                        "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "v", "path": "f"}},
                    }
                ]
            },
            [],
        ),
        (
            {
                "env": [
                    {
                        "name": "E",
                        "valueFrom": {
                            "fileKeyRef": {"key": "a=b", "volumeName": "v.w", "path": "../f"}
                        },
                    }
                ]
            },
            [
                (
                    '.env[0].valueFrom.fileKeyRef.key: Invalid value: "a=b": a valid environment variable name must '
                    "consist only of printable ASCII characters other than '='"
                ),
                '.env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "v.w": must not contain dots',
                ".env[0].valueFrom.fileKeyRef.path: Invalid value: \"../f\": must not contain '..'",
                '.env[0].valueFrom.fileKeyRef.volumeName: Not found: "v.w"',
            ],
        ),
        (
            {"securityContext": {"appArmorProfile": {"type": "Localhost"}}},
            [
                (
                    ".securityContext.appArmorProfile.localhostProfile: Required value: must be set when "
                    "AppArmor type is Localhost"
                )
            ],
        ),
        (
            {
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"add": ["CAP_SYS_ADMIN"]},
                    "seLinuxOptions": {"level": "s0"},
                    "windowsOptions": {"gmsaCredentialSpecName": "a"},
                }
            },
            [
                (
                    '.securityContext: Invalid value: {"Capabilities":{"Add":["CAP_SYS_ADMIN"],"Drop":null},'
                    '"Privileged":null,"SELinuxOptions":{"User":"","Role":"","Type":"","Level":"s0"},'
                    '"WindowsOptions":{"GMSACredentialSpecName":"a","GMSACredentialSpec":null,"RunAsUserName":null,'
                    '"HostProcess":null},"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,'
                    '"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,'
                    '"SeccompProfile":null,"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and '
                    "`capabilities.Add` CAP_SYS_ADMIN"
                )
            ],
        ),
        (
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}
                ]
            },
            [
                (
                    ".volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to "
                    "privileged containers"
                )
            ],
        ),
        (
            {"volumeDevices": [{"name": "v", "devicePath": "/a"}]},
            [
                (
                    '.volumeDevices[0].name: Invalid value: "v": can only use volume source type of '
                    "PersistentVolumeClaim or Ephemeral for block mode"
                )
            ],
        ),
    ],
)
def test_fields_of_containers(container: dict[str, Any], expected: list[str]) -> None:
    assert errors([container], volumes=[{"name": "v", "emptyDir": {}}]) == [
        f"spec.containers[0]{x}" for x in expected
    ]


@pytest.mark.parametrize(
    ("annotations", "profiles", "expected"),
    [
        ({SECCOMP: "runtime/default"}, {"seccompProfile": {"type": "RuntimeDefault"}}, []),
        ({SECCOMP: "docker/default"}, {"seccompProfile": {"type": "RuntimeDefault"}}, []),
        (
            {SECCOMP: "localhost/a"},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}},
            [],
        ),
        ({SECCOMP: "unconfined"}, {}, []),
        (
            {SECCOMP: "localhost/a"},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}},
            [
                "seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match"
            ],
        ),
        (
            {SECCOMP: "unconfined"},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}},
            ["seccompProfile.type: Forbidden: seccomp type in annotation and field must match"],
        ),
        (
            {APP_ARMOR: "unconfined"},
            {"appArmorProfile": {"type": "RuntimeDefault"}},
            ["appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"],
        ),
    ],
)
def test_profiles_of_a_new_pod_match_its_annotations(
    annotations: dict[str, str], profiles: dict[str, Any], expected: list[str]
) -> None:
    obj = pod([{"securityContext": copy_json(profiles)}])
    obj["metadata"]["annotations"] = annotations
    found = [str(each) for each in pod_only_errors(obj, new=True)]
    assert found == [f"spec.containers[0].securityContext.{each}" for each in expected]
    assert not list(pod_only_errors(obj, new=False))


def test_profile_of_a_new_pod_matches_its_annotation() -> None:
    obj = pod(
        securityContext={
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        }
    )
    obj["metadata"]["annotations"] = {
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
        APP_ARMOR: "",
    }
    assert [each.field for each in pod_only_errors(obj, new=True)] == [
        "spec.securityContext.seccompProfile.type",
        "spec.containers[0].securityContext.appArmorProfile.type",
    ]


def test_annotations_of_static_pods_and_profiles_are_immutable() -> None:
    mirror, other = "kubernetes.io/config.mirror", "kubernetes.io/config.mirror2"
    old = {"annotations": {mirror: "a", APP_ARMOR: "unconfined", other: "a"}}
    new = {"annotations": {mirror: "b", other: "b"}}
    assert [each.detail for each in annotation_change_errors(new, old)] == [
        "may not remove or update AppArmor annotations",
        "may not remove or update mirror pod annotation",
    ]
    assert [each.detail for each in annotation_change_errors(old, {})] == [
        "may not add AppArmor annotations",
        "may not add mirror pod annotation",
    ]


def test_file_with_environment_variables_is_in_an_empty_directory() -> None:
    reference = {"fileKeyRef": {"key": "K", "volumeName": "v", "path": "f"}}
    containers = [{"env": [{"name": "E", "valueFrom": reference}]}]
    path = "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName"
    assert errors(containers, volumes=[{"name": "v", "hostPath": {"path": "/"}}]) == [
        f'{path}: Invalid value: "v": referenced volume must be of type emptyDir'
    ]


def test_containers_cannot_mount_an_invalid_volume() -> None:
    mounts = [{"volumeMounts": [{"name": "v", "mountPath": "/a"}]}]
    assert errors(mounts, volumes=[{"name": "v", "hostPath": {"path": "/a/../b"}}]) == [
        "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"name": "e", "image": "i", "targetContainerName": "c0"}, []),
        ({"name": "c0", "image": "i"}, ['.name: Duplicate value: "c0"']),
        (
            {"name": "e", "image": "i", "targetContainerName": "d"},
            ['.targetContainerName: Not found: "d"'],
        ),
        (
            {"name": "e", "image": "i", "ports": [{"containerPort": 1, "protocol": "TCP"}]},
            [".ports: Forbidden: cannot be set for an Ephemeral Container"],
        ),
    ],
)
def test_ephemeral_containers(container: dict[str, Any], expected: list[str]) -> None:
    target = pod(ephemeralContainers=[container])
    found = [str(each) for each in pod_only_errors(target, new=False)]
    assert found == [f"spec.ephemeralContainers[0]{each}" for each in expected]


def test_ephemeral_containers_are_only_added() -> None:
    old = pod(ephemeralContainers=[{"name": "a", "image": "i"}])
    new = pod(ephemeralContainers=[{"name": "b", "image": "i"}])
    assert [str(each) for each in ephemeral_container_change_errors(new, old)] == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "a" may not be removed\n'
    ]
    both = pod(ephemeralContainers=[{"name": "b", "image": "i"}, {"name": "a", "image": "i"}])
    assert not list(ephemeral_container_change_errors(both, old))


GUARANTEED = {part: {"cpu": "1", "memory": "1Gi"} for part in ("limits", "requests")}
BURSTABLE = {"limits": {"memory": "2Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BURSTABLE, {**BURSTABLE, "requests": {"cpu": "2", "memory": "1Gi"}}, []),
        (GUARANTEED, {part: {"cpu": "2", "memory": "1Gi"} for part in ("limits", "requests")}, []),
        (
            GUARANTEED,
            {**GUARANTEED, "limits": {"cpu": "2", "memory": "1Gi"}},
            [
                'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'
            ],
        ),
        (
            BURSTABLE,
            {"limits": {"memory": "2Gi"}, "requests": {"cpu": "1"}},
            [
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"
            ],
        ),
        (
            BURSTABLE,
            {**BURSTABLE, "limits": {"memory": "2Gi", "ephemeral-storage": "1"}},
            ["spec: Forbidden: only cpu and memory resources are mutable"],
        ),
    ],
)
def test_resize_changes_cpu_and_memory(
    before: dict[str, Any], after: dict[str, Any], expected: list[str]
) -> None:
    old, new = pod([{"resources": before}]), pod([{"resources": after}])
    assert [str(each) for each in resize_errors(new, old)] == expected


def test_resize_ignores_other_fields_and_rejects_new_containers() -> None:
    old = pod([{"resources": BURSTABLE}])
    new = copy_json(old)
    new["metadata"]["labels"] = {"a": "b"}
    new["spec"]["containers"][0]["image"] = "other"
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    keep_resources(new, old)
    assert new["metadata"] == old["metadata"]
    assert new["spec"]["containers"][0]["image"] == "i"
    assert new["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    more = pod([{"resources": BURSTABLE}, {}])
    keep_resources(more, old)
    assert [str(each) for each in resize_errors(more, old)] == [
        "spec.containers: Forbidden: containers may not be added or removed on resize"
    ]


def test_status_does_not_restart_terminated_containers() -> None:
    old = pod(restartPolicy="OnFailure")
    new = copy_json(old)
    ended = {"name": "c0", "state": {"terminated": {"exitCode": 0}}}
    old["status"]["containerStatuses"] = [ended]
    new["status"] |= {
        "containerStatuses": [{"name": "c0", "state": {"running": {}}}],
        "podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}],
        "qosClass": "Guaranteed",
    }
    assert [str(each) for each in pod_status_errors(new, old)] == [
        'status.qosClass: Invalid value: "Guaranteed": field is immutable',
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
        (
            'status.podIPs: Invalid value: [{"IP":"1.2.3.4"},{"IP":"1.2.3.5"}]: may specify no more than '
            "one IP for each IP family"
        ),
    ]


def test_label_keys_are_merged_into_selectors() -> None:
    constraint = {
        "matchLabelKeys": ["hash", "absent"],
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    spec = {"topologySpreadConstraints": [constraint]}
    merge_label_keys(spec, {"hash": "1"})
    assert constraint["labelSelector"] == {
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}],
    }


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {"kubernetes.io/config.mirror": "x"},
            ['[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName'],
        ),
        ({"controller.kubernetes.io/pod-deletion-cost": "-7"}, []),
        (
            {"controller.kubernetes.io/pod-deletion-cost": "+1"},
            [
                '[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer'
            ],
        ),
        (
            {"controller.kubernetes.io/pod-deletion-cost": "2147483648"},
            [
                '[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "2147483648": must be a 32bit integer'
            ],
        ),
        (
            {"seccomp.security.alpha.kubernetes.io/pod": "odd"},
            [
                '.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "odd": must be a valid seccomp profile'
            ],
        ),
        ({"container.apparmor.security.beta.kubernetes.io/c0": "localhost/x"}, []),
        (
            {"container.apparmor.security.beta.kubernetes.io/z": "odd"},
            [
                '[container.apparmor.security.beta.kubernetes.io/z]: Invalid value: "z": container not found',
                '[container.apparmor.security.beta.kubernetes.io/z]: Invalid value: "odd": invalid AppArmor profile',
            ],
        ),
    ],
)
def test_annotations(annotations: dict[str, str], expected: list[str]) -> None:
    obj = pod()
    obj["metadata"]["annotations"] = annotations
    found = [
        str(each).removeprefix("metadata.annotations") for each in pod_only_errors(obj, new=True)
    ]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_claims_of_ephemeral_volumes() -> None:
    template = {"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    path = "spec.volumes[0].ephemeral.volumeClaimTemplate"
    assert errors(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]) == [
        f"{path}.metadata.name: Forbidden: cannot be set for an ephemeral volume",
        f"{path}.spec.resources[storage]: Required value",
    ]


def test_local_seccomp_profile_of_another_type() -> None:
    (error,) = errors(
        securityContext={"seccompProfile": {"type": "Unconfined", "localhostProfile": "x"}}
    )
    path, _, problem = error.partition(": ")
    assert path == "spec.securityContext.seccompProfile.localhostProfile"
    shown = '{"Type":"Unconfined","LocalhostProfile":"x"}'
    assert problem == f"Invalid value: {shown}: can only be set when seccomp type is Localhost"
