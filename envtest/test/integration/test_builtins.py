"""Built-in kinds: defaults, validation, immutable fields and warnings."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.api_client import APIClient

CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
NET = "/apis/networking.k8s.io/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def obj(api_version: str, kind: str, name: str = "one", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def pod_spec(**fields: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": "c", "image": "i:1"}],
        "automountServiceAccountToken": False,
        **fields,
    }


def pod(name: str = "one", **spec: Any) -> dict[str, Any]:
    return obj("v1", "Pod", name, spec=pod_spec(**spec))


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(**spec)}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    selection = {"selector": {"matchLabels": {"app": "a"}}, "template": template()}
    return obj("apps/v1", kind, spec={**selection, **spec})


def job(**spec: Any) -> dict[str, Any]:
    return obj("batch/v1", "Job", spec={"template": template(restartPolicy="Never"), **spec})


def cron_job(**spec: Any) -> dict[str, Any]:
    job_template = {"spec": {"template": template(restartPolicy="Never")}}
    return obj(
        "batch/v1", "CronJob", spec={"schedule": "* * * * *", "jobTemplate": job_template, **spec}
    )


def service(name: str = "one", **spec: Any) -> dict[str, Any]:
    return obj("v1", "Service", name, spec={"ports": [{"port": 80}], **spec})


def ingress(**spec: Any) -> dict[str, Any]:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return obj(
        "networking.k8s.io/v1", "Ingress", spec={"rules": [{"http": {"paths": [path]}}], **spec}
    )


def covers(actual: Any, expected: Any) -> bool:
    """Return whether ``actual`` contains everything that ``expected`` does."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            covers(actual.get(name), value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(map(covers, actual, expected))
        )
    return bool(actual == expected)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            f"{CORE}/pods",
            pod(),
            {
                "spec": {
                    "containers": [
                        {
                            "imagePullPolicy": "IfNotPresent",
                            "terminationMessagePath": "/dev/termination-log",
                            "terminationMessagePolicy": "File",
                            "resources": {},
                        }
                    ],
                    "restartPolicy": "Always",
                    "dnsPolicy": "ClusterFirst",
                    "schedulerName": "default-scheduler",
                    "securityContext": {},
                    "terminationGracePeriodSeconds": 30,
                    "enableServiceLinks": True,
                    "priority": 0,
                    "preemptionPolicy": "PreemptLowerPriority",
                },
                "status": {"phase": "Pending", "qosClass": "BestEffort"},
            },
        ),
        (
            f"{CORE}/pods",
            pod(
                volumes=[{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}],
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "ports": [{"containerPort": 1}],
                        "env": [
                            {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                        ],
                        "readinessProbe": {"httpGet": {"port": 1}},
                        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
                    }
                ],
            ),
            {
                "spec": {
                    "volumes": [{"emptyDir": {}}, {"secret": {"defaultMode": 420}}],
                    "containers": [
                        {
                            "imagePullPolicy": "Always",
                            "ports": [{"protocol": "TCP"}],
                            "env": [{"valueFrom": {"fieldRef": {"apiVersion": "v1"}}}],
                            "readinessProbe": {
                                "httpGet": {"path": "/", "scheme": "HTTP", "port": 1},
                                "timeoutSeconds": 1,
                                "periodSeconds": 10,
                                "successThreshold": 1,
                                "failureThreshold": 3,
                            },
                            "resources": {
                                "limits": {"cpu": "1", "memory": "1Gi"},
                                "requests": {"cpu": "1", "memory": "1Gi"},
                            },
                        }
                    ],
                },
                "status": {"qosClass": "Guaranteed"},
            },
        ),
        (
            f"{CORE}/services",
            service(),
            {
                "spec": {
                    "type": "ClusterIP",
                    "sessionAffinity": "None",
                    "internalTrafficPolicy": "Cluster",
                    "ipFamilies": ["IPv4"],
                    "ipFamilyPolicy": "SingleStack",
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                },
                "status": {"loadBalancer": {}},
            },
        ),
        (
            f"{CORE}/secrets",
            obj("v1", "Secret", stringData={"a": "b"}),
            {"type": "Opaque", "data": {"a": "Yg=="}},
        ),
        (
            f"{CORE}/persistentvolumeclaims",
            obj(
                "v1",
                "PersistentVolumeClaim",
                spec={
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1024Mi"}},
                },
            ),
            {
                "spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Pending"},
            },
        ),
        (
            f"{APPS}/deployments",
            workload("Deployment"),
            {
                "spec": {
                    "replicas": 1,
                    "revisionHistoryLimit": 10,
                    "progressDeadlineSeconds": 600,
                    "strategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                    },
                },
                "status": {},
            },
        ),
        (
            f"{APPS}/statefulsets",
            workload("StatefulSet"),
            {
                "spec": {
                    "podManagementPolicy": "OrderedReady",
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                    "persistentVolumeClaimRetentionPolicy": {
                        "whenDeleted": "Retain",
                        "whenScaled": "Retain",
                    },
                }
            },
        ),
        (
            f"{BATCH}/jobs",
            job(),
            {
                "spec": {
                    "parallelism": 1,
                    "completions": 1,
                    "backoffLimit": 6,
                    "completionMode": "NonIndexed",
                    "suspend": False,
                    "podReplacementPolicy": "TerminatingOrFailed",
                    "template": {"metadata": {"labels": {"job-name": "one"}}},
                }
            },
        ),
        (
            f"{BATCH}/cronjobs",
            cron_job(),
            {
                "spec": {
                    "concurrencyPolicy": "Allow",
                    "suspend": False,
                    "successfulJobsHistoryLimit": 3,
                    "failedJobsHistoryLimit": 1,
                }
            },
        ),
        (
            f"{NET}/networkpolicies",
            obj("networking.k8s.io/v1", "NetworkPolicy", spec={"podSelector": {}, "egress": [{}]}),
            {"spec": {"policyTypes": ["Ingress", "Egress"]}},
        ),
        (
            f"{RBAC}/clusterrolebindings",
            obj(
                "rbac.authorization.k8s.io/v1",
                "ClusterRoleBinding",
                roleRef={"kind": "ClusterRole", "name": "r"},
                subjects=[{"kind": "User", "name": "u"}],
            ),
            {
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io"}],
            },
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            obj(
                "flowcontrol.apiserver.k8s.io/v1",
                "FlowSchema",
                spec={"priorityLevelConfiguration": {"name": "p"}},
            ),
            {"spec": {"matchingPrecedence": 1000}},
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            obj(
                "resource.k8s.io/v1",
                "ResourceClaim",
                spec={
                    "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}
                },
            ),
            {
                "spec": {
                    "devices": {
                        "requests": [{"exactly": {"allocationMode": "ExactCount", "count": 1}}]
                    }
                }
            },
        ),
    ],
    ids=lambda value: value.rpartition("/")[2] if isinstance(value, str) else "",
)
async def test_defaults_are_set_on_creation(
    api: APIClient, path: str, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    response = await api.post(path, body)
    assert response.code == 201, response.body
    assert covers(response.body, expected), response.body


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (f"{CORE}/pods", pod(containers=[]), "spec.containers: Required value"),
        (
            f"{CORE}/pods",
            pod(containers=[{"name": "C", "image": "i"}]),
            "spec.containers[0].name: Invalid value",
        ),
        (
            f"{CORE}/pods",
            pod(containers=[{"name": "c"}]),
            "spec.containers[0].image: Required value",
        ),
        (
            f"{CORE}/pods",
            pod(restartPolicy="Maybe"),
            'spec.restartPolicy: Unsupported value: "Maybe"',
        ),
        (
            f"{CORE}/pods",
            pod(containers=[{"name": "c", "image": "i"}] * 2),
            'spec.containers[1].name: Duplicate value: "c"',
        ),
        (
            f"{CORE}/pods",
            pod(
                containers=[
                    {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/"}]}
                ]
            ),
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            f"{CORE}/pods",
            pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                    }
                ]
            ),
            "must be less than or equal to cpu limit of 1",
        ),
        (
            f"{CORE}/pods",
            pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "livenessProbe": {"grpc": {"port": 1}, "successThreshold": 2},
                    }
                ]
            ),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            f"{CORE}/pods",
            pod(containers=[{"name": "c", "image": "i", "securityContext": {"runAsUser": -1}}]),
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647",
        ),
        (
            f"{CORE}/pods",
            pod(volumes=[{"name": "v", "hostPath": {"path": "/a/../b"}}]),
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            f"{CORE}/pods",
            pod(
                topologySpreadConstraints=[
                    {"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            ),
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
        ),
        (
            f"{CORE}/pods",
            pod(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
                    }
                }
            ),
            "nodeSelectorTerms: Required value: must have at least one node selector term",
        ),
        (
            f"{CORE}/pods",
            pod(
                initContainers=[
                    {"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["x"]}}}
                ]
            ),
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without",
        ),
        (
            f"{CORE}/limitranges",
            obj(
                "v1",
                "LimitRange",
                spec={"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]},
            ),
            'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        ),
        (
            f"{APPS}/daemonsets",
            workload("DaemonSet", updateStrategy={"rollingUpdate": {"maxSurge": 1}}),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is",
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            obj("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "101%", "selector": {}}),
            'spec.minAvailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            f"{CORE}/services",
            service(ports=[{"port": 0}]),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (f"{CORE}/services", service(ports=[]), "spec.ports: Required value"),
        (f"{CORE}/services", service(type="Odd"), 'spec.type: Unsupported value: "Odd"'),
        (
            f"{CORE}/configmaps",
            obj("v1", "ConfigMap", data={"a/b": ""}),
            'data[a/b]: Invalid value: "a/b": a valid config key must consist of alphanumeric characters',
        ),
        (
            f"{CORE}/secrets",
            obj("v1", "Secret", type="kubernetes.io/tls", data={}),
            "data[tls.crt]: Required value",
        ),
        (
            f"{APPS}/deployments",
            workload("Deployment", selector={"matchLabels": {"app": "b"}}),
            "spec.template.metadata.labels: Invalid value",
        ),
        (
            f"{APPS}/deployments",
            workload("Deployment", replicas=-1),
            "spec.replicas: Invalid value: -1",
        ),
        (
            f"{APPS}/deployments",
            workload("Deployment", template=template(restartPolicy="Never")),
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ),
        (
            f"{BATCH}/jobs",
            job(template=template()),
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        (f"{BATCH}/cronjobs", cron_job(schedule="often"), "spec.schedule: Invalid value"),
        (
            f"{NET}/ingresses",
            ingress(rules=[{"host": "UPPER", "http": {"paths": []}}]),
            "spec.rules[0].host: Invalid value",
        ),
        (
            f"{NET}/ingresses",
            ingress(rules=[], defaultBackend=None),
            "either `defaultBackend` or `rules` must be specified",
        ),
        (
            f"{RBAC}/clusterroles",
            obj(
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                rules=[{"apiGroups": [""], "resources": ["pods"]}],
            ),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
    ],
    ids=lambda value: (
        value.rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else ""
    ),
)
async def test_invalid_object_is_rejected(
    api: APIClient, path: str, body: dict[str, Any], message: str
) -> None:
    response = await api.post(path, body)
    assert response.code == 422, response.body
    assert message in response.body["message"]
    assert response.body["details"]["causes"]


@pytest.mark.parametrize(
    ("path", "body", "patch", "message"),
    [
        (
            f"{APPS}/deployments",
            workload("Deployment"),
            {"spec": {"selector": {"matchLabels": {"app": "a", "b": "c"}}}},
            "field is immutable",
        ),
        (
            f"{APPS}/statefulsets",
            workload("StatefulSet"),
            {"spec": {"serviceName": "other"}},
            "updates to statefulset spec for fields other than",
        ),
        (
            f"{BATCH}/jobs",
            job(),
            {"spec": {"template": {"spec": {"hostNetwork": True}}}},
            "field is immutable",
        ),
        (
            f"{CORE}/pods",
            pod(),
            {"spec": {"nodeName": "n"}},
            "pod updates may not change fields other than",
        ),
        (
            f"{CORE}/services",
            service(),
            {"spec": {"clusterIP": "10.0.0.77"}},
            "may not change once set",
        ),
        (
            f"{CORE}/configmaps",
            obj("v1", "ConfigMap", immutable=True, data={"a": "b"}),
            {"data": {"a": "c"}},
            "field is immutable when `immutable` is set",
        ),
        (
            f"{RBAC}/clusterrolebindings",
            obj(
                "rbac.authorization.k8s.io/v1",
                "ClusterRoleBinding",
                roleRef={
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "r",
                },
            ),
            {"roleRef": {"name": "other"}},
            "cannot change roleRef",
        ),
    ],
    ids=lambda value: (
        value.rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else ""
    ),
)
async def test_immutable_field_cannot_be_changed(
    api: APIClient, path: str, body: dict[str, Any], patch: dict[str, Any], message: str
) -> None:
    assert (await api.post(path, body)).code == 201
    response = await api.merge(f"{path}/one", patch)
    assert response.code == 422, response.body
    assert message in response.body["message"]
    assert (await api.merge(f"{path}/one", {"metadata": {"labels": {"l": "v"}}})).code == 200


async def test_image_of_a_pod_can_be_changed(api: APIClient) -> None:
    await api.post(f"{CORE}/pods", pod())
    spec = {"containers": [{"name": "c", "image": "i:2"}]}
    response = await api.request(
        "PATCH",
        f"{CORE}/pods/one",
        {"spec": spec},
        content_type="application/strategic-merge-patch+json",
    )
    assert response.code == 200
    assert response.body["spec"]["containers"][0]["image"] == "i:2"


GATES = {"schedulingGates": [{"name": "a/b"}, {"name": "a/c"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
MORE = {"matchExpressions": [*TERM["matchExpressions"], {"key": "disk", "operator": "Exists"}]}


def node_affinity(*terms: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}, **more}}}


PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
TERMS_PATH = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


@pytest.mark.parametrize(
    ("before", "change", "message"),
    [
        ({}, {"nodeSelector": {"x": "y"}}, ""),
        ({}, {"nodeSelector": {"x": "y"}, "schedulingGates": None}, ""),
        ({}, {"schedulingGates": [{"name": "a/c"}]}, ""),
        (
            {"nodeSelector": {"x": "y"}},
            {"nodeSelector": {"x": "z"}},
            "spec.nodeSelector: Invalid value: {",
        ),
        (
            {"nodeSelector": {"x": "y"}},
            {"nodeSelector": None},
            "only additions to spec.nodeSelector are allowed",
        ),
        ({}, node_affinity(TERM), ""),
        (
            {},
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "z"}]}}},
            "pod updates may not change",
        ),
        (node_affinity(TERM), node_affinity(MORE), ""),
        (node_affinity(TERM), node_affinity(TERM, **PREFERRED), ""),
        (node_affinity(MORE), node_affinity(TERM), f"{TERMS_PATH}[0]: Invalid value"),
        (node_affinity(TERM), node_affinity(TERM, TERM), f"{TERMS_PATH}: Invalid value: ["),
        (
            node_affinity(TERM),
            {"affinity": None},
            f"{TERMS_PATH}: Invalid value: null: no additions/deletions",
        ),
        ({}, {"nodeName": "n"}, "pod updates may not change fields other than"),
        (
            {},
            {"schedulingGates": [*GATES["schedulingGates"], {"name": "a/d"}]},
            "spec.schedulingGates[2].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a/d'",
        ),
    ],
)
async def test_scheduling_of_a_gated_pod_can_only_be_narrowed(
    api: APIClient, before: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    body = pod()
    body["spec"] |= {**GATES, **before}
    assert (await api.post(f"{CORE}/pods", body)).code == 201
    response = await api.merge(f"{CORE}/pods/one", {"spec": change})
    assert response.code == (422 if message else 200), response.body
    assert message in (response.body.get("message") or "")


async def test_gates_cannot_be_added_and_gated_pods_cannot_be_bound(api: APIClient) -> None:
    await api.post(f"{CORE}/pods", pod())
    assert (await api.merge(f"{CORE}/pods/one", {"spec": GATES})).code == 422
    assert (await api.merge(f"{CORE}/pods/one", {"spec": {"nodeSelector": {"x": "y"}}})).code == 422
    gated = pod("two")
    gated["spec"] |= GATES
    await api.post(f"{CORE}/pods", gated)
    binding = obj("v1", "Binding", name="two", target={"kind": "Node", "name": "n"})
    response = await api.post(f"{CORE}/pods/two/binding", binding)
    assert (response.code, response.body["message"]) == (
        409,
        'Operation cannot be fulfilled on pods/binding "two": pod two has non-empty .spec.schedulingGates',
    )


async def test_service_creation_fails_when_all_cluster_ips_are_allocated(api: APIClient) -> None:
    for number in range(253):  # 10.0.0.1 belongs to the Service "kubernetes"
        assert (await api.post(f"{CORE}/services", service(f"s-{number}"))).code == 201
    refused = await api.post(f"{CORE}/services", service("one-more"))
    assert (refused.code, refused.body["reason"]) == (500, "InternalError")
    assert (
        refused.body["message"]
        == "Internal error occurred: failed to allocate a serviceIP: range is full"
    )
    assert (await api.delete(f"{CORE}/services/s-7")).code == 200
    assert (await api.post(f"{CORE}/services", service("one-more"))).code == 201


async def test_services_get_distinct_cluster_ips_and_node_ports(api: APIClient) -> None:
    first = (await api.post(f"{CORE}/services", service("one"))).body["spec"]["clusterIP"]
    second = (await api.post(f"{CORE}/services", service("two", type="NodePort"))).body["spec"]
    assert first != second["clusterIP"]
    assert 30000 <= second["ports"][0]["nodePort"] <= 32767
    conflicting = await api.post(f"{CORE}/services", service("three", clusterIP=first))
    assert conflicting.code == 422
    assert "already allocated" in conflicting.body["message"]
    assert (await api.delete(f"{CORE}/services/one")).code == 200
    assert (await api.post(f"{CORE}/services", service("three", clusterIP=first))).code == 201
    headless = (await api.post(f"{CORE}/services", service("four", clusterIP="None"))).body["spec"]
    assert headless["clusterIPs"] == ["None"]


async def test_dry_run_releases_allocated_addresses(api: APIClient) -> None:
    wanted = service("one", type="NodePort", ports=[{"port": 80, "nodePort": 31234}])
    for _ in range(2):
        assert (await api.post(f"{CORE}/services", wanted, {"dryRun": "All"})).code == 201
    assert (await api.post(f"{CORE}/services", wanted)).code == 201


async def test_wrong_json_type_is_a_decoding_error(api: APIClient) -> None:
    response = await api.post(f"{CORE}/configmaps", obj("v1", "ConfigMap", data={"a": 1}))
    text = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert response.code == 400
    assert (
        response.body["message"]
        == f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {text}'
    )
    await api.post(f"{CORE}/configmaps", obj("v1", "ConfigMap"))
    merged = await api.merge(f"{CORE}/configmaps/one", {"data": {"a": 1}})
    assert merged.code == 422
    assert merged.body["details"]["causes"][0]["message"].endswith(f": {text}")
    strategic = {"content_type": "application/strategic-merge-patch+json"}
    patched = await api.request("PATCH", f"{CORE}/configmaps/one", {"data": {"a": 1}}, **strategic)
    assert patched.body["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: "map[data:map[a:1]]": cannot convert int64 to string',
            "field": "patch",
        }
    ]


async def test_null_quantity_is_zero(api: APIClient) -> None:
    body = pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": None}}}])
    response = await api.post(f"{CORE}/pods", body, {"dryRun": "All"})
    assert response.body["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "0"}}


async def test_unknown_and_duplicate_fields_are_reported(api: APIClient) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","odd":1},"data":{"a":"b","a":"c"}}'
    strict = await api.post(f"{CORE}/configmaps", body, {"fieldValidation": "Strict"})
    assert strict.code == 400
    assert 'unknown field "metadata.odd"' in strict.body["message"]
    assert 'duplicate field "data.a"' in strict.body["message"]
    assert (await api.post(f"{CORE}/configmaps", body, {"fieldValidation": "Ignore"})).code == 201


async def test_events_of_both_groups_are_the_same_objects(api: APIClient) -> None:
    event = obj(
        "v1",
        "Event",
        involvedObject={"kind": "Pod", "namespace": "default", "name": "p"},
        reason="R",
    )
    event |= {"message": "hello", "type": "Normal", "source": {"component": "c"}}
    assert (await api.post(f"{CORE}/events", event)).code == 201
    other = (await api.get("/apis/events.k8s.io/v1/namespaces/default/events/one")).body
    assert other["apiVersion"] == "events.k8s.io/v1"
    assert (other["note"], other["regarding"]["name"]) == ("hello", "p")
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {
        **obj("events.k8s.io/v1", "Event", name="two"),
        "regarding": {"kind": "Pod", "name": "q"},
    }
    event["regarding"]["namespace"] = "default"
    event |= {
        "reason": "R",
        "type": "Normal",
        "action": "A",
        "reportingController": "x",
        "reportingInstance": "y",
    }
    event["eventTime"] = "2026-01-01T00:00:00.000000Z"
    assert (await api.post(new, event)).code == 201
    for selector, names in (
        ("regarding.name=q", ["two"]),
        ("regarding.kind=Pod,regarding.namespace=default", ["one", "two"]),
        ("reportingController=x", ["two"]),
        ("regarding.name!=q", ["one"]),
    ):
        found = await api.get(new, {"fieldSelector": selector})
        assert [item["metadata"]["name"] for item in found.body["items"]] == names, selector


def duplicate_env() -> dict[str, Any]:
    variables = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    return {"containers": [{"name": "c", "image": "i", "env": variables}]}


@pytest.mark.parametrize(
    ("path", "body", "warnings"),
    [
        (
            f"{CORE}/pods",
            pod("a.b"),
            [
                (
                    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
                    "a DNS label is recommended: [must not contain dots]"
                )
            ],
        ),
        (
            f"{CORE}/pods",
            pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
            [
                'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'
            ],
        ),
        (
            f"{CORE}/pods",
            pod(**duplicate_env()),
            [
                'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply'
            ],
        ),
        (
            f"{CORE}/pods",
            pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "ports": [{"containerPort": 1}, {"containerPort": 1}],
                    }
                ]
            ),
            [
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"
            ],
        ),
        (
            f"{APPS}/deployments",
            workload("Deployment", template=template(**duplicate_env())),
            [
                (
                    'spec.template.spec.containers[0].env[1]: hides previous definition of "A", which may be dropped '
                    "when using apply"
                )
            ],
        ),
        (
            f"{NET}/ingresses",
            {
                **ingress(),
                "metadata": {"name": "one", "annotations": {"kubernetes.io/ingress.class": "n"}},
            },
            [
                "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
            ],
        ),
        (
            f"{CORE}/serviceaccounts",
            obj(
                "v1",
                "ServiceAccount",
                metadata={"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
            ),
            [
                (
                    "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer "
                    "separate namespaces to isolate access to mounted secrets"
                )
            ],
        ),
        (f"{CORE}/services", service(type="ClusterIP", trafficDistribution="PreferSameNode"), []),
        (
            f"{CORE}/services",
            service(externalName="e.example.com"),
            ['spec.externalName is ignored when spec.type is not "ExternalName"'],
        ),
    ],
)
async def test_questionable_object_is_accepted_with_a_warning(
    api: APIClient, path: str, body: dict[str, Any], warnings: list[str]
) -> None:
    response = await api.post(path, body)
    assert response.code == 201, response.body
    headers = response.headers.getall("Warning", [])  # type: ignore[attr-defined]
    escaped = [text.replace('"', '\\"') for text in warnings]
    assert headers == [f'299 - "{text}"' for text in escaped]


async def test_deprecated_annotation_of_a_service_account_is_reported_once(api: APIClient) -> None:
    annotations = {"kubernetes.io/enforce-mountable-secrets": "true"}
    path = f"{CORE}/serviceaccounts/one"
    await api.post(f"{CORE}/serviceaccounts", obj("v1", "ServiceAccount"))
    added = await api.merge(path, {"metadata": {"annotations": annotations}})
    assert "deprecated in v1.32+" in added.headers["Warning"]
    changed = await api.merge(path, {"metadata": {"annotations": {"a": "b"}}})
    assert "Warning" not in changed.headers


async def test_patches_of_an_old_version_preserve_what_only_the_new_one_has(api: APIClient) -> None:
    new, old = (
        f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"
        for version in ("v2", "v1")
    )
    target = {"type": "Utilization", "averageUtilization": 50}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": target}}],
        "behavior": {"scaleUp": {"stabilizationWindowSeconds": 5}},
    }
    annotations = {"autoscaling.alpha.kubernetes.io/metrics": "[]", "mine": "x"}
    created = await api.post(
        new, {"metadata": {"name": "one", "annotations": annotations}, "spec": spec}
    )
    assert created.body["metadata"]["annotations"] == {"mine": "x"}
    condition = {
        "type": "AbleToScale",
        "status": "True",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    await api.merge(
        f"{new}/one/status", {"status": {"conditions": [condition], "desiredReplicas": 1}}
    )
    before = (await api.get(f"{new}/one")).body

    patched = await api.merge(f"{old}/one", {"spec": {"maxReplicas": 4}})
    assert patched.body["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"] == (
        '[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}}]'
    )
    after = (await api.get(f"{new}/one")).body
    assert after["spec"] == {**before["spec"], "maxReplicas": 4}
    assert (after["status"], after["metadata"]["annotations"]) == (before["status"], {"mine": "x"})

    annotations = {"autoscaling.alpha.kubernetes.io/conditions": None}  # belongs to the status
    await api.merge(f"{old}/one", {"metadata": {"annotations": annotations}})
    assert (await api.get(f"{new}/one")).body["status"]["conditions"] == [condition]
    annotations = {"autoscaling.alpha.kubernetes.io/behavior": None}  # belongs to the spec
    await api.merge(
        f"{old}/one/status",
        {"metadata": {"annotations": annotations}, "status": {"currentReplicas": 2}},
    )
    after = (await api.get(f"{new}/one")).body
    assert after["spec"]["behavior"] == before["spec"]["behavior"]
    assert after["status"] == {**before["status"], "currentReplicas": 2}


async def test_objects_of_the_api_server_exist_at_its_start(api: APIClient) -> None:
    leases = await api.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
    [lease] = [
        each for each in leases.body["items"] if each["metadata"]["name"].startswith("apiserver-")
    ]
    assert lease["metadata"]["labels"]["apiserver.kubernetes.io/identity"] == "kube-apiserver"
    assert lease["spec"]["holderIdentity"].startswith(lease["metadata"]["name"] + "_")
    assert lease["spec"]["leaseDurationSeconds"] == 3600
    tracking = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
    assert list((await api.get(tracking)).body["data"]) == ["since"]
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public"
    for plural in ("roles", "rolebindings"):
        assert (await api.get(f"{rbac}/{plural}/system:controller:bootstrap-signer")).code == 200
