"""Rules of bodies, patches and decoding, which random requests have shown (``make differential``)."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient, Response
from test.integration.test_differential import CORE, crd, custom
from test.support.rules import AUTOSCALERS, CUSTOM, JSON_PATCH, NOTE, STRATEGIC, causes


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"spec": {"minAvailable": 1, "unhealthyPodEvictionPolicy": "a\0<b"}},
            r'Unsupported value: "a\u0000\u003cb": ',
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            {"roleRef": {"apiGroup": "a\0<b", "kind": "Role", "name": "r"}},
            r'Unsupported value: "a\x00<b": ',
        ),
    ],
)
async def test_only_plain_strings_are_quoted_in_errors_of_choices(
    api: APIClient, path: str, body: dict[str, Any], message: str
) -> None:
    answer = await api.post(path, {"metadata": {"name": "a"}, **body})
    assert answer.code == 422
    assert causes(answer.body)[0][1].startswith(message)


async def test_a_control_character_in_a_field_name_is_quoted(api: APIClient) -> None:
    body = {"metadata": {"name": "a"}, "\0x": 1}
    answer = await api.post(f"{CORE}/configmaps", body)
    assert answer.code == 201
    assert answer.headers["Warning"] == '299 - "unknown field \\"\\\\x00x\\""'


async def test_warnings_with_control_characters_are_left_out(
    plane: ControlPlane, api: APIClient
) -> None:
    await plane.install_crds(crd("notes", NOTE))
    answer = await api.post(
        f"{CUSTOM}/notes", {**custom("Note"), "metadata": {"name": "a", "\nx": 1}}
    )
    assert answer.code == 201
    assert "Warning" not in answer.headers


async def test_null_is_an_empty_strategic_merge_patch(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}})
    answer = await api.request("PATCH", f"{CORE}/configmaps/a", b"null", content_type=STRATEGIC)
    assert answer.code == 200


async def test_merge_patches_keep_nulls_in_lists(plane: ControlPlane, api: APIClient) -> None:
    items = {"type": "array", "items": {"type": "string"}}
    await plane.install_crds(crd("notes", {"items": items}))
    await api.post(f"{CUSTOM}/notes", custom("Note", items=["a"]))
    answer = await api.merge(f"{CUSTOM}/notes/a", {"spec": {"items": [None]}})
    assert answer.code == 422
    assert "spec.items[0]" in answer.body["message"]


async def test_an_applied_null_is_an_error(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", NOTE))
    applied = await api.apply(f"{CUSTOM}/notes/a", custom("Note", a=None), "m")
    created = await api.post(f"{CUSTOM}/notes", custom("Note", a=None))
    assert (applied.code, created.code) == (422, 201)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "replace", "path": "", "value": "a"}, 422),
        ({"op": "add", "path": "", "value": {}}, 422),
        ({"op": "replace", "path": "", "value": {"kind": "ConfigMap", "apiVersion": "v1"}}, 200),
    ],
)
async def test_a_json_patch_can_replace_the_whole_document(
    api: APIClient, operation: dict[str, Any], code: int
) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}, "data": {"a": "b"}})
    operation = {**operation}
    if code == 200:
        operation["value"] = {**operation["value"], "metadata": {"name": "a"}}
    path = f"{CORE}/configmaps/a"
    answer = await api.request("PATCH", path, [operation], content_type=JSON_PATCH)
    assert answer.code == code
    assert "data" not in answer.body


async def test_other_documents_of_a_yaml_body_are_ignored(api: APIClient) -> None:
    text = b'{"metadata": {"name": "a"}} x'
    path = f"{CORE}/configmaps"
    answer = await api.request("POST", path, text, content_type="application/yaml")
    assert (answer.code, answer.body["metadata"]["name"]) == (201, "a")


async def test_whole_floats_count_as_a_change(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", {"size": {"type": "integer"}}))
    await api.post(f"{CUSTOM}/notes", custom("Note", size=1))
    answer = await api.merge(f"{CUSTOM}/notes/a", {"spec": {"size": 1.0}})
    assert answer.body["metadata"]["generation"] == 2


async def test_unsupported_patch_types_are_refused_before_warnings(api: APIClient) -> None:
    answer = await api.request("PATCH", f"{CORE}/endpoints/a", {}, content_type="text/plain")
    assert answer.code == 415
    assert "Warning" not in answer.headers


async def test_numbers_that_overflow_are_decoding_errors(
    plane: ControlPlane, api: APIClient
) -> None:
    await plane.install_crds(crd("notes", {"size": {"type": "number"}}))
    head = b'{"apiVersion": "rules.example.com/v1", "kind": "Note", "metadata": {"name": "a"}'
    answer = await api.request("POST", f"{CUSTOM}/notes", head + b', "spec": {"size": 1e400}}')
    assert answer.code == 400
    assert answer.body["message"].startswith('Note in version "v1" cannot be handled as a Note: ')
    number = f"-{'1' * 50}e4000"
    body = head + f', "spec": {{"size": {number}}}}}'.encode()
    answer = await api.request("POST", f"{CUSTOM}/notes", body)
    assert f"cannot unmarshal number {number} into Go value" in answer.body["message"]
    built_in = b'{"metadata": {"name": "a"}, "\\ud800": 1e400}'
    answer = await api.request("POST", f"{CORE}/configmaps", built_in)
    assert answer.code == 201


async def test_a_map_that_an_apply_empties_remains(plane: ControlPlane, api: APIClient) -> None:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    await plane.install_crds(crd("notes", {"labels": labels}))
    await api.apply(f"{CUSTOM}/notes/a", custom("Note", labels={"a": "b"}), "m")
    answer = await api.apply(f"{CUSTOM}/notes/a", custom("Note", labels={}), "m")
    assert answer.code == 200
    assert answer.body["spec"] == {"labels": {}}


async def test_a_map_with_an_empty_key_is_shown_in_errors(api: APIClient) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    spec = {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    volume = {"accessModes": ["ReadWriteOnce"], "flexVolume": {"driver": "d", "options": {"": "x"}}}
    answer = await api.merge(f"{path}/a", {"spec": {"source": {"inlineVolumeSpec": volume}}})
    assert answer.code == 422
    assert '"Options":{"":"x"}' in dict(causes(answer.body))["spec"]


async def test_unknown_fields_of_strategic_patches_are_sorted(api: APIClient) -> None:
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "c"}})
    body = {"zz": 1, "aa": 1}
    answer = await api.request("PATCH", f"{CORE}/configmaps/c", body, content_type=STRATEGIC)
    warnings = answer.headers.getall("Warning")
    assert ["aa" in warnings[0], "zz" in warnings[1]] == [True, True]


async def test_a_body_of_another_version_is_decoded_before_it_is_refused(api: APIClient) -> None:
    path = f"/apis/autoscaling/v1/{AUTOSCALERS}"
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "unknown": 1}
    answer = await api.post(path, body)
    assert "does not match the expected API version" in answer.body["message"]
    assert 'unknown field \\"unknown\\"' in answer.headers.getall("Warning")[0]
    answer = await api.post(path, body, {"fieldValidation": "Strict"})
    assert "strict decoding error" in answer.body["message"]
    answer = await api.post(path, {**body, "spec": 1})
    assert 'in version "v2" cannot be handled' in answer.body["message"]
    event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}}
    answer = await api.post(f"{CORE}/events", event)
    assert "does not match the expected API version (v1)" in answer.body["message"]


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def test_a_value_that_decodes_itself_is_reported_before_wrong_types(api: APIClient) -> None:
    path = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
    body = {"metadata": {"name": "c"}, "storageClassName": 1, "nodeTopology": 1, "capacity": "x"}
    answer = await api.post(path, body)
    assert answer.code == 400
    assert "quantities must match the regular expression" in answer.body["message"]
    answer = await api.post(path, {**body, "capacity": "1Gi"})
    assert ".storageClassName of type string" in answer.body["message"]


async def test_a_wrong_type_in_items_of_a_schema_ends_the_decoding(api: APIClient) -> None:
    array: dict[str, Any] = {"type": "array", "maxItems": "x", "items": {"type": 1}}
    body = crd("items", {"a": array})
    answer = await api.post(CRDS, body)
    assert answer.code == 400
    assert "openAPIV3Schema.properties.properties.items.type of type" in answer.body["message"]
    del array["maxItems"]
    answer = await api.request(
        "PATCH",
        f"{CRDS}/{body['metadata']['name']}",
        body,
        query={"fieldManager": "a"},
        content_type="application/apply-patch+yaml",
    )
    assert "Go struct field JSONSchemaProps.type of type string" in answer.body["message"]


@pytest.mark.parametrize(
    ("path", "version", "kind", "problem"),
    [
        ("/apis/apiregistration.k8s.io/v1/apiservices", "v1", "List", "no kind"),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "v1", "ListOptions", "converting (v1."),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "meta.k8s.io/v9", "Status", "(v1.Status)"),
        (CRDS, "apps/v1", "WatchEvent", "converting (v1.WatchEvent)"),
        (CRDS, "apps/v1", "DeleteOptions", "no kind"),
        ("/api/v1/namespaces", "autoscaling/v1", "Scale", "converting (v1.Scale)"),
        ("/api/v1/namespaces", "apiregistration.k8s.io/v1", "APIService", "no kind"),
    ],
)
async def test_each_api_server_has_a_scheme_with_its_own_kinds(
    api: APIClient, path: str, version: str, kind: str, problem: str
) -> None:
    answer = await api.post(path, {"apiVersion": version, "kind": kind})
    assert answer.code == 400
    assert problem in answer.body["message"]


async def test_an_applied_object_without_metadata_has_no_name(api: APIClient) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}
    answer = await api.request(
        "PATCH",
        f"{CORE}/configmaps/applied",
        body,
        query={"fieldManager": "a"},
        content_type="application/apply-patch+yaml",
    )
    assert answer.code == 400
    assert "was undeterminable: name must be provided" in answer.body["message"]


async def test_only_times_that_go_parses_are_quoted_in_yaml(api: APIClient) -> None:
    quoted = [
        "2026-01-02",
        "2026-1-2t3:4:5Z",
        "2026-01-02  03:04:05",
        "2026-01-02T03:04:05.5+24:00",
    ]
    plain = ["2026-02-30", "2026-01-02t03:04:05z", "2026-01-02T03:04:05", "2026-01-02 25:04:05"]
    data = {str(position): text for position, text in enumerate([*quoted, *plain])}
    await api.post(f"{CORE}/configmaps", {"metadata": {"name": "times"}, "data": data})
    answer = await api.get(f"{CORE}/configmaps/times", headers={"Accept": "application/yaml"})
    text = answer.body
    assert [f': "{each}"\n' in text for each in quoted] == [True] * len(quoted)
    assert [f": {each}\n" in text for each in plain] == [True] * len(plain)


async def test_quantities_are_stored_in_canonical_form_or_as_sent(api: APIClient) -> None:
    stored = {
        "-843.929e3": "-843.929e3",
        "1.5e3": "1500",
        "1.500": "1.500",
        "+1": "+1",
        "010Gi": "010Gi",
        "08Gi": "8Gi",
        "1000E": "1",
        "1000e18": "1e21",
    }
    sent = {f"example.com/r{index}": quantity for index, quantity in enumerate(stored)}
    body = {
        "metadata": {"name": "quantities"},
        "spec": {"limits": [{"type": "Pod", "max": sent}]},
    }
    assert (await api.post(f"{CORE}/limitranges", body)).code == 201
    answer = await api.get(f"{CORE}/limitranges/quantities")
    assert list(answer.body["spec"]["limits"][0]["max"].values()) == list(stored.values())
    await api.delete(f"{CORE}/limitranges/quantities")


async def test_an_applied_number_that_is_not_convertible_is_reported(api: APIClient) -> None:
    paths = {version: f"/apis/autoscaling/{version}/{AUTOSCALERS}/a" for version in ("v1", "v2")}
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}

    async def apply(version: str, most: float, manager: str) -> Response:
        body = {
            "apiVersion": f"autoscaling/{version}",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"},
            "spec": {"scaleTargetRef": target, "maxReplicas": most},
        }
        return await api.apply(paths[version], body, manager, {"force": "true"})

    assert (await apply("v2", 3, "x")).code == 201
    answer = await apply("v1", 1.5, "y")
    assert answer.code == 500
    assert answer.body["message"] == (
        "failed to convert new object: unable to convert unstructured object to autoscaling/v1, "
        "Kind=HorizontalPodAutoscaler: cannot convert float64 to int32"
    )
