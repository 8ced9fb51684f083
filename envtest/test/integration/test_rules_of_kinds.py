"""Rules of single built-in kinds, which random requests have shown (``make differential``)."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.api_client import APIClient
from test.integration.test_differential import CORE
from test.support.rules import APPS, DRY_RUN, STRATEGIC, TEMPLATE, causes

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


async def test_endpoint_slices_count_changed_labels_and_dropped_topology(api: APIClient) -> None:
    endpoint: dict[str, Any] = {"addresses": ["10.1.0.1"]}
    body = {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint], "ports": []}
    await api.post(SLICES, body)
    endpoint["deprecatedTopology"] = {"a": "b"}
    dropped = await api.put(f"{SLICES}/s", body)
    labelled = await api.merge(f"{SLICES}/s", {"metadata": {"labels": {"a": "b"}}})
    annotated = await api.merge(f"{SLICES}/s", {"metadata": {"annotations": {"a": "b"}}})
    assert "deprecatedTopology" not in dropped.body["endpoints"][0]
    generations = [each.body["metadata"]["generation"] for each in (dropped, labelled, annotated)]
    assert generations == [2, 3, 3]


async def test_a_family_error_of_an_endpoint_names_the_list(api: APIClient) -> None:
    body = {
        "metadata": {"name": "s"},
        "addressType": "IPv6",
        "endpoints": [{"addresses": ["10.1.0.1"]}],
        "ports": [],
    }
    answer = await api.post(SLICES, body)
    message = 'Invalid value: "10.1.0.1": must be an IPv6 address'
    assert causes(answer.body) == [("endpoints[0].addresses", message)]


async def test_errors_of_new_events_include_metadata_and_series(api: APIClient) -> None:
    event = {"eventTime": "2026-01-02T03:04:05.000006Z", "type": "Normal", "series": {"count": 1}}
    answer = await api.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    fields = [field for field, _ in causes(answer.body)]
    assert {"metadata.name", "series.count", "series.lastObservedTime"} <= {*fields}


async def test_addresses_have_no_generated_names(api: APIClient) -> None:
    spec = {"parentRef": {"resource": "services", "name": "s", "namespace": "default"}}
    body = {"metadata": {"generateName": "gen-"}, "spec": spec}
    answer = await api.post("/apis/networking.k8s.io/v1/ipaddresses", body)
    assert answer.body["details"]["name"] == "gen-"


@pytest.mark.parametrize(("spec", "shown"), [({}, "null"), ({"request": ""}, '""')])
async def test_an_absent_signing_request_is_shown_as_null(
    api: APIClient, spec: dict[str, Any], shown: str
) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    problem = f"Invalid value: {shown}: PEM block type must be CERTIFICATE REQUEST"
    assert ("spec.request", problem) in causes(answer.body)


async def test_devices_of_slices_are_validated(api: APIClient) -> None:
    device = {
        "attributes": {"-a": {"int": 1}},
        "bindingConditions": ["a", "a"],
        "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
        "taints": [{"key": "a", "effect": "None"}],
    }
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [device]}
    body = {"metadata": {"name": "s"}, "spec": spec}
    path = "/apis/resource.k8s.io/v1/resourceslices"
    fields = sorted(field for field, _ in causes((await api.post(path, body)).body))
    assert fields == [
        "spec.devices[0].attributes",
        "spec.devices[0].bindingConditions[1]",
        "spec.devices[0].bindingFailureConditions",
        "spec.devices[0].capacity[m].requestPolicy",
        "spec.devices[0].name",
    ]
    device.clear()
    device |= {"name": "d", "taints": [{"key": "a", "effect": "None"}]}
    answer = await api.post(path, body)
    assert answer.body["spec"]["devices"][0]["taints"][0]["timeAdded"]


async def test_a_service_without_external_addresses_loses_their_policy(api: APIClient) -> None:
    spec = {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}
    await api.post(f"{CORE}/services", {"metadata": {"name": "s"}, "spec": spec})
    answer = await api.merge(f"{CORE}/services/s", {"spec": {"externalIPs": []}})
    assert answer.code == 200
    assert "externalTrafficPolicy" not in answer.body["spec"]


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"


async def test_the_case_of_a_device_driver_is_ignored(api: APIClient) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "aA", "nodeName": "n", "pool": pool, "devices": [{"name": "d"}]}
    body = {"metadata": {"name": "upper"}, "spec": spec}
    answer = await api.post("/apis/resource.k8s.io/v1/resourceslices", body)
    assert answer.code == 201


async def test_a_role_without_rules_has_no_owner_of_them(api: APIClient) -> None:
    answer = await api.post(ROLES, {"metadata": {"name": "none"}})
    assert "managedFields" not in answer.body["metadata"]
    answer = await api.post(ROLES, {"metadata": {"name": "empty"}, "rules": []})
    (entry,) = answer.body["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:rules": {}}


async def test_reports_about_devices_need_their_allocation(api: APIClient) -> None:
    exactly = {"deviceClassName": "c"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await api.post(CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
    device = {"driver": "d.example.com", "pool": "p", "device": "x"}
    results = [{"request": "r", **device}]
    path = f"{CLAIMS}/c/status"

    answer = await api.merge(path, {"status": {"devices": [device]}})
    ((field, message),) = causes(answer.body)
    assert field == "status.devices[0]"
    assert "must be an allocated device in the claim" in message

    network = {
        "interfaceName": "i" * 257,
        "hardwareAddress": "h" * 129,
        "ips": ["1", "192.0.2.1/24", "192.0.2.1/24", "2001:DB8::1/64"],
    }
    report = {**device, "data": [], "networkData": network, "shareID": "abc"}
    answer = await api.merge(path, {"status": {"devices": [report]}})
    assert sorted(field for field, _ in causes(answer.body)) == [
        "status.devices[0]",
        "status.devices[0].data",
        "status.devices[0].networkData.hardwareAddress",
        "status.devices[0].networkData.interfaceName",
        "status.devices[0].networkData.ips[0]",
        "status.devices[0].networkData.ips[2]",
        "status.devices[0].networkData.ips[3]",
        "status.devices[0].shareID",
    ]

    allocation = {"devices": {"results": results}}
    body = {"status": {"allocation": allocation, "devices": [device, device]}}
    answer = await api.merge(path, body)
    shown = '{"Driver":"d.example.com","Pool":"p","Device":"x","ShareID":""}'
    assert causes(answer.body) == [("status.devices[1]", f"Duplicate value: {shown}")]

    answer = await api.merge(path, {"status": {"allocation": allocation, "devices": [device]}})
    assert answer.code == 200
    answer = await api.merge(path, {"status": {"allocation": None}})
    assert answer.code == 200
    assert answer.body["status"] == {}


async def test_a_status_without_the_time_of_its_phase_keeps_it(api: APIClient) -> None:
    path = "/api/v1/persistentvolumes"
    csi = {"driver": "d.example.com", "volumeHandle": "h"}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    created = await api.post(path, {"metadata": {"name": "pv"}, "spec": spec})
    body = {"metadata": {"name": "pv"}, "spec": spec, "status": {"phase": "Pending"}}
    answer = await api.put(f"{path}/pv/status", body)
    assert answer.body["status"] == created.body["status"]


async def test_the_prefix_of_an_address_is_validated_in_updates(api: APIClient) -> None:
    path = "/apis/networking.k8s.io/v1/ipaddresses"
    spec = {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}
    await api.post(path, {"metadata": {"name": "192.0.2.7"}, "spec": spec})
    answer = await api.merge(f"{path}/192.0.2.7", {"metadata": {"generateName": "a-"}})
    assert [field for field, _ in causes(answer.body)] == ["metadata.generateName"]


async def test_errors_of_reasons_show_all_examples(api: APIClient) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await api.post(path, {"metadata": {"name": "r"}, "spec": {"minAvailable": 1}})
    condition = {"type": "T", "status": "True", "reason": "-", "message": ""}
    condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    answer = await api.merge(f"{path}/r/status", {"status": {"conditions": [condition]}})
    ((_, message),) = causes(answer.body)
    assert "or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex" in message


@pytest.mark.parametrize(
    "name",
    ["extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"],
)
async def test_the_server_owns_the_config_maps_that_it_creates(api: APIClient, name: str) -> None:
    answer = await api.get(f"/api/v1/namespaces/kube-system/configmaps/{name}")
    (entry,) = answer.body["metadata"]["managedFields"]
    assert entry["manager"] == "kube-apiserver"
    owned = {f"f:{key}" for key in answer.body["data"]}
    assert entry["fieldsV1"]["f:data"].keys() == {".", *owned}


async def test_an_address_needs_a_service_with_a_name(api: APIClient) -> None:
    body = {"metadata": None, "spec": {"ports": [{"port": 80}]}}
    answer = await api.post(f"{CORE}/services", body)
    ((field, message),) = causes(answer.body)
    assert field == "spec.clusterIPs"
    assert message.endswith("is invalid: spec.parentRef.name: Required value")
    answer = await api.post(f"{CORE}/services", body, DRY_RUN)
    assert [field for field, _ in causes(answer.body)] == ["metadata.name"]


async def test_a_changed_reason_of_an_event_is_reported_twice(api: APIClient) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    body = {"metadata": {"name": "twice"}, "eventTime": "2026-01-02T03:04:05.000006Z"}
    body |= {"action": "A", "reason": "R", "type": "Normal"}
    body |= {"reportingController": "example.com/a", "reportingInstance": "i"}
    assert (await api.post(path, body)).code == 201
    answer = await api.put(f"{path}/twice", {**body, "reason": "S"})
    assert [field for field, _ in causes(answer.body)] == ["reason", "reason"]


REVISIONS = f"{APPS}/controllerrevisions"


@pytest.mark.parametrize("data", [[1], "x", 1, True])
async def test_data_of_a_revision_is_a_json_object(api: APIClient, data: Any) -> None:
    answer = await api.post(REVISIONS, {"metadata": {"name": "r"}, "data": data, "revision": 1})
    assert causes(answer.body) == [("data", "Required value: data must be a valid JSON object")]


async def test_data_of_a_revision_is_immutable(api: APIClient) -> None:
    body = {"metadata": {"name": "r"}, "data": {"a": 1.0}, "revision": 1}
    assert (await api.post(REVISIONS, body)).code == 201
    assert (await api.put(f"{REVISIONS}/r", {**body, "revision": 2})).code == 200
    answer = await api.put(f"{REVISIONS}/r", {**body, "data": {"a": 1}})
    assert causes(answer.body) == [("data", 'Invalid value: {"a":1}: field is immutable')]
    answer = await api.put(f"{REVISIONS}/r", {"metadata": {"name": "r"}, "revision": 3})
    assert causes(answer.body) == [("data", "Invalid value: null: field is immutable")]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a/b", "may not contain '/'"),
        ("..", "may not be '..'"),
        ("x", 'must be `spec.version+"."+spec.group`: "v1.g.example.com"'),
    ],
)
async def test_an_apiservice_has_one_error_about_its_name(
    api: APIClient, name: str, problem: str
) -> None:
    spec = {"group": "g.example.com", "version": "v1", "insecureSkipTLSVerify": True}
    spec |= {"groupPriorityMinimum": 1000, "versionPriority": 10}
    spec["service"] = {"namespace": "default", "name": "s"}
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    answer = await api.post(path, {"metadata": {"name": name}, "spec": spec})
    assert causes(answer.body) == [("metadata.name", f'Invalid value: "{name}": {problem}')]


async def test_an_empty_volume_name_of_an_attachment_has_two_errors(api: APIClient) -> None:
    spec = {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": ""}}
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert answer.code == 422
    reasons = sorted(each["reason"] for each in answer.body["details"]["causes"])
    assert reasons == ["FieldValueInvalid", "FieldValueRequired"]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            {
                "spec": {
                    "maxReplicas": 3,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                    "behavior": {"scaleDown": {"policies": []}},
                }
            },
            [
                (
                    "spec.behavior.scaleDown.policies",
                    "Required value: must specify at least one Policy",
                )
            ],
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            {"provisioner": "a/b", "reclaimPolicy": ""},
            [],
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"value": 1, "preemptionPolicy": ""},
            [("preemptionPolicy", "Required value")],
        ),
        (
            "/api/v1/persistentvolumes",
            {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "-1500m"},
                    "hostPath": {"path": "/a"},
                }
            },
            [
                ("spec.capacity[storage]", "Invalid value: -2: must be a valid resource quantity"),
                ("spec.capacity[storage]", 'Invalid value: "-1500m": must be greater than zero'),
            ],
        ),
    ],
)
async def test_values_that_are_empty_are_not_absent(
    api: APIClient, path: str, body: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    answer = await api.post(path, {"metadata": {"name": "a"}, **body}, DRY_RUN)
    assert (causes(answer.body) if expected else answer.code) == (expected or 201)


async def test_bytes_can_be_a_list_of_numbers(api: APIClient) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    body: dict[str, Any] = {"metadata": {"name": "a"}, "data": {"a": [None, 255]}}
    stored = await api.post(secrets, body, DRY_RUN)
    body["data"]["a"] = [256]
    rejected = await api.post(secrets, body, DRY_RUN)
    assert stored.body["data"] == {"a": "AP8="}
    assert rejected.body["message"].endswith(
        "json: cannot unmarshal number 256 into Go struct field Secret.data of type uint8"
    )


async def test_template_generation_of_daemon_sets_is_converted(api: APIClient) -> None:
    """kube-apiserver reports it in a different way for each kind of patch."""
    path = f"{APPS}/daemonsets"
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    patch = {"metadata": {"annotations": {"deprecated.daemonset.template.generation": "x"}}}
    merged = await api.merge(f"{path}/a", patch)
    combined = await api.request("PATCH", f"{path}/a", patch, content_type=STRATEGIC)
    identity = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    patch["metadata"]["name"] = "a"
    applied = await api.apply(f"{path}/a", {**identity, **patch}, "m", {"force": "true"})
    problem = 'strconv.ParseInt: parsing "x": invalid syntax'
    unconverted = "failed to convert to unversioned (/a; apps/v1, Kind=DaemonSet)"
    assert (merged.code, combined.code, applied.code) == (422, 500, 500)
    assert problem in merged.body["message"]
    assert combined.body["message"] == problem
    assert applied.body["message"] == f"{unconverted}: {problem}"
