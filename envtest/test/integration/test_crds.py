"""CRDs: their validation, their establishment, and their effect on custom resources."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from envtest.api_client import APIClient

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 2},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "fixed": {
                    "type": "string",
                    "x-kubernetes-validations": [
                        {"rule": "self == oldSelf", "message": "fixed is fixed"}
                    ],
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.mode) || self.mode != 'b' || self.size > 5",
                    "message": "b is for the big",
                }
            ],
        },
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
        },
    },
}


def version(name: str = "v1", **fields: Any) -> dict[str, Any]:
    base = {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": copy.deepcopy(SCHEMA)},
    }
    return {**base, **fields}


def build_crd(
    *versions: dict[str, Any], group: str = "example.com", **names: Any
) -> dict[str, Any]:
    all_names = {"plural": "things", "kind": "Thing", **names}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{all_names['plural']}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": all_names,
            "versions": list(versions) or [version()],
        },
    }


async def establish(api: APIClient, crd: dict[str, Any]) -> dict[str, Any]:
    response = await api.post(CRDS, crd)
    assert response.code == 201, response.body
    group, served = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
    await api.until(f"/apis/{group}/{served}/{crd['spec']['names']['plural']}", 200)
    stored: dict[str, Any] = (await api.get(f"{CRDS}/{crd['metadata']['name']}")).body
    return stored


def thing(name: str = "one", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": spec,
    }


def conditions(crd: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in crd["status"]["conditions"]}


async def test_names_are_defaulted_and_accepted(api: APIClient) -> None:
    crd = await establish(api, build_crd(shortNames=["th"], categories=["all"]))
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    names |= {"shortNames": ["th"], "categories": ["all"]}  # type: ignore[dict-item]
    assert crd["spec"]["names"] == crd["status"]["acceptedNames"] == names
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert conditions(crd)["NamesAccepted"] == ("True", "NoConflicts")
    assert conditions(crd)["Established"] == ("True", "InitialNamesAccepted")
    (resource,) = (await api.get("/apis/example.com/v1")).body["resources"]
    assert (resource["name"], resource["shortNames"], resource["categories"]) == (
        "things",
        ["th"],
        ["all"],
    )


async def test_crd_with_conflicting_names_is_established_when_they_become_free(
    api: APIClient,
) -> None:
    await establish(api, build_crd())
    second = build_crd(plural="others", kind="Thing", listKind="OtherList")
    assert (await api.post(CRDS, second)).code == 201
    refused = (await api.get(f"{CRDS}/others.example.com")).body
    while not (refused.get("status") or {}).get("conditions"):
        refused = (await api.get(f"{CRDS}/others.example.com")).body
    assert conditions(refused)["NamesAccepted"] == ("False", "KindConflict")
    assert conditions(refused)["Established"] == ("False", "NotAccepted")
    assert (await api.delete(f"{CRDS}/things.example.com")).code == 200
    await api.until("/apis/example.com/v1/others", 200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda schema: schema.pop("type"),
            "openAPIV3Schema.type: Required value: must not be empty at the root",
        ),
        (
            lambda schema: schema["properties"]["spec"]["properties"].update(x={"properties": {}}),
            "properties[spec].properties[x].type: Required value: must not be empty for specified object fields",
        ),
        (
            lambda schema: schema["properties"]["spec"]["properties"]["size"].update(default="two"),
            "properties[size].default: Invalid value",
        ),
        (
            lambda schema: schema["properties"]["spec"]["properties"]["mode"].update(pattern="("),
            "properties[mode].pattern: Invalid value",
        ),
        (
            lambda schema: schema["properties"]["spec"]["x-kubernetes-validations"].append(
                {"rule": "self.none > 1"}
            ),
            "undefined field 'none'",
        ),
        (
            lambda schema: schema["properties"]["spec"]["properties"].update(l={"type": "array"}),
            "properties[l].items: Required value: must be specified",
        ),
        (
            lambda schema: schema["properties"]["spec"]["properties"]["mode"].update(
                uniqueItems=True
            ),
            "uniqueItems cannot be set to true",
        ),
    ],
)
async def test_invalid_schema_is_rejected(api: APIClient, change: Any, message: str) -> None:
    invalid = version()
    change(invalid["schema"]["openAPIV3Schema"])
    response = await api.post(CRDS, build_crd(invalid))
    assert response.code == 422
    assert message in response.body["message"]


@pytest.mark.parametrize("odd", [None, [], "", 0, "x", True, [{}]], ids=repr)
@pytest.mark.parametrize(
    "word", ["type", "properties", "items", "required", "enum", "default", "additionalProperties"]
)
async def test_malformed_schema_never_causes_a_server_error(
    api: APIClient, word: str, odd: Any
) -> None:
    for place in ("list", "item"):
        strange = version()
        items: dict[str, Any] = {"type": "object", "properties": {"k": {"type": "string"}}}
        node: dict[str, Any] = {"type": "array", "items": items}
        (node if place == "list" else items)[word] = odd
        strange["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["strange"] = node
        assert (await api.post(CRDS, build_crd(strange), {"dryRun": "All"})).code in (201, 400, 422)


async def test_crd_name_must_match_plural_and_group(api: APIClient) -> None:
    crd = build_crd()
    crd["metadata"]["name"] = "wrong"
    response = await api.post(CRDS, crd)
    assert response.code == 422
    assert 'must be spec.names.plural+"."+spec.group' in response.body["message"]
    crd["metadata"] = {"name": "things.example.com", "generateName": "foo"}
    message = (
        'metadata.generateName: Invalid value: "foo": must be spec.names.plural+"."+spec.group'
    )
    assert message in (await api.post(CRDS, crd)).body["message"]


async def test_errors_of_a_crd_are_in_the_order_of_kube_apiserver(api: APIClient) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "strin"}}}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "Toys", "kind": "Toy"},
        "versions": [{"name": "V_1", "served": True, "schema": schema}],
    }
    answer = await api.post(
        CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "Toys.example.com"},
            "spec": spec,
        },
    )
    fields = [cause["field"] for cause in answer.body["details"]["causes"]]
    assert [field for field in fields if field.startswith("spec.")] == [
        "spec.versions[0].name",
        "spec.versions",
        "spec.version",
        "spec.names.plural",
        "spec.validation.openAPIV3Schema.properties[a].type",
    ]


async def test_crd_of_another_api_version_is_rejected(api: APIClient) -> None:
    old = await api.post(CRDS, {**build_crd(), "apiVersion": "apiextensions.k8s.io/v1beta1"})
    assert (old.code, old.body["message"]) == (
        400,
        (
            "the API version in the data (apiextensions.k8s.io/v1beta1) does not match the expected API version "
            "(apiextensions.k8s.io/v1)"
        ),
    )
    other = await api.post(CRDS, {**build_crd(), "apiVersion": "v1", "kind": "ConfigMap"})
    scheme = '"k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55"'
    assert (
        f'no kind "ConfigMap" is registered for version "v1" in scheme {scheme}'
        in other.body["message"]
    )


@pytest.mark.parametrize(
    "rule",
    [
        "!has(self.namespace) || size(self.namespace) == 0",
        "self.package > 0",
        "self.?namespace.orValue('') == ''",
        "self.__namespace__ == '' || 'self.namespace' == r'self.namespace'",
        "(has(self.jwksUri) ? 1 : 0) + (has(self.jwks_uri) ? 1 : 0) <= 1",
    ],
)
async def test_rules_may_use_reserved_words_and_similar_names_as_fields(
    api: APIClient, rule: str
) -> None:
    served = version()
    names = {"namespace": "string", "package": "integer", "jwksUri": "string", "jwks_uri": "string"}
    spec = {"type": "object", "properties": {name: {"type": each} for name, each in names.items()}}
    spec["x-kubernetes-validations"] = [{"rule": rule, "message": "no"}]
    served["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    await establish(api, build_crd(served))
    assert (await api.post(THINGS, thing(package=1, namespace=""))).code == 201
    if "package" in rule:
        assert (await api.post(THINGS, thing("two", package=0))).code == 422


@pytest.mark.parametrize(
    "rule", ["namespace == ''", "self['namespace'] == ''", "self.null == ''", "self.in == ''"]
)
async def test_reserved_words_are_not_variables_or_keys(api: APIClient, rule: str) -> None:
    served = version()
    spec = {"type": "object", "properties": {"namespace": {"type": "string"}}}
    served["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        **spec,
        "x-kubernetes-validations": [{"rule": rule}],
    }
    assert (await api.post(CRDS, build_crd(served))).code == 422


async def test_custom_resource_is_defaulted_pruned_and_validated(api: APIClient) -> None:
    await establish(api, build_crd())
    created = await api.post(THINGS, thing(mode="a", stranger=1, free={"any": ["thing"]}))
    assert created.code == 201
    assert created.body["spec"] == {"size": 2, "mode": "a", "free": {"any": ["thing"]}}
    assert created.body["metadata"]["generation"] == 1
    refused = await api.post(THINGS, thing("two", size=0, mode="c"))
    assert refused.code == 422
    assert {(each["field"], each["reason"]) for each in refused.body["details"]["causes"]} >= {
        ("spec.size", "FieldValueInvalid"),
        ("spec.mode", "FieldValueNotSupported"),
    }
    rejected_by_rule = await api.post(THINGS, thing("two", mode="b"))
    assert rejected_by_rule.code == 422
    assert "b is for the big" in rejected_by_rule.body["message"]


async def test_unknown_field_is_handled_by_field_validation(api: APIClient) -> None:
    await establish(api, build_crd())
    strict = await api.post(THINGS, thing(stranger=1), {"fieldValidation": "Strict"})
    assert strict.code == 400
    assert 'strict decoding error: unknown field "spec.stranger"' in strict.body["message"]
    warned = await api.post(THINGS, thing(stranger=1), {"fieldValidation": "Warn"})
    assert warned.code == 201
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.stranger\\""'


async def test_transition_rule_rejects_a_change(api: APIClient) -> None:
    await establish(api, build_crd())
    await api.post(THINGS, thing(fixed="x"))
    assert (await api.merge(f"{THINGS}/one", {"spec": {"size": 3}})).code == 200
    refused = await api.merge(f"{THINGS}/one", {"spec": {"fixed": "y"}})
    assert refused.code == 422
    assert "fixed is fixed" in refused.body["message"]


async def test_unchanged_invalid_value_is_tolerated_after_schema_change(api: APIClient) -> None:
    """KEP-4008 (ratcheting): a value that was already invalid and is not changed is not an error."""
    await establish(api, build_crd())
    await api.post(THINGS, thing(mode="a", size=3))
    stricter = [
        {
            "op": "replace",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size",
        }
    ]
    stricter[0]["value"] = {"type": "integer", "minimum": 10}  # type: ignore[assignment]
    patched = await api.request(
        "PATCH", f"{CRDS}/things.example.com", stricter, content_type="application/json-patch+json"
    )
    assert patched.code == 200
    while (await api.post(THINGS, thing("probe", size=5), {"dryRun": "All"})).code != 422:
        pass
    assert (await api.merge(f"{THINGS}/one", {"metadata": {"labels": {"a": "b"}}})).code == 200
    assert (await api.merge(f"{THINGS}/one", {"spec": {"size": 4}})).code == 422


async def test_status_and_scale_subresources(api: APIClient) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}
    scale["labelSelectorPath"] = ".status.selector"
    await establish(api, build_crd(version(subresources={"status": {}, "scale": scale})))
    created = await api.post(THINGS, {**thing(size=3), "status": {"replicas": 9}})
    assert "status" not in created.body
    status = {**created.body, "spec": {"size": 8}, "status": {"replicas": 1, "selector": "a=b"}}
    updated = await api.put(f"{THINGS}/one/status", status)
    assert (updated.body["spec"]["size"], updated.body["status"]["replicas"]) == (3, 1)
    assert updated.body["metadata"]["generation"] == 1
    scaled = (await api.get(f"{THINGS}/one/scale")).body
    assert (scaled["spec"], scaled["status"]) == (
        {"replicas": 3},
        {"replicas": 1, "selector": "a=b"},
    )
    scaled["spec"]["replicas"] = 5
    assert (await api.put(f"{THINGS}/one/scale", scaled)).code == 200
    after = (await api.get(f"{THINGS}/one")).body
    assert (after["spec"]["size"], after["metadata"]["generation"]) == (5, 2)
    for metadata in ({"name": "one", "namespace": "default"}, {"name": "one"}):
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": 2},
        }
        assert (await api.put(f"{THINGS}/one/scale", body)).code == 200
    stale = {
        **body,
        "metadata": {**metadata, "resourceVersion": after["metadata"]["resourceVersion"]},
    }
    assert (await api.put(f"{THINGS}/one/scale", stale)).code == 409


async def test_replicas_that_are_not_set_can_be_scaled_but_not_read(api: APIClient) -> None:
    """As in kube-apiserver: the first ``kubectl scale`` sets the field."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await establish(
        api, build_crd(version(subresources={"scale": scale}, schema={"openAPIV3Schema": schema}))
    )
    assert (await api.post(THINGS, thing())).code == 201
    unset = await api.get(f"{THINGS}/one/scale")
    assert (unset.code, "does not exist" in unset.body["message"]) == (500, True)
    empty = await api.merge(f"{THINGS}/one/scale", {"spec": {}})
    assert empty.body["message"] == 'the spec replicas field ".spec.replicas" cannot be empty'
    scaled = await api.merge(f"{THINGS}/one/scale", {"spec": {"replicas": 3}})
    assert (scaled.code, scaled.body["spec"]) == (200, {"replicas": 3})
    assert (await api.get(f"{THINGS}/one/scale")).body["spec"] == {"replicas": 3}


async def test_versions_with_conversion_strategy_none(api: APIClient) -> None:
    versions = [version("v2", storage=True), version("v1", storage=False)]
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] = {
        "type": "string"
    }
    await establish(api, build_crd(*versions))
    newer = {**thing(later="x", size=4), "apiVersion": "example.com/v2"}
    assert (await api.post("/apis/example.com/v2/namespaces/default/things", newer)).code == 201
    old_object = (await api.get(f"{THINGS}/one")).body
    assert old_object["apiVersion"] == "example.com/v1"
    assert old_object["spec"] == {"size": 4}


async def test_later_default_is_applied_on_read(api: APIClient) -> None:
    """Objects are also defaulted when they are read, with the schema of the version that they are stored in."""
    versions = [version("v1"), version("v1beta1", storage=False)]
    await establish(api, build_crd(*versions))
    await api.post(THINGS, thing(mode="a"))
    crd = (await api.get(f"{CRDS}/things.example.com")).body
    for position, default in enumerate(("of v1", "of v1beta1")):
        fields = crd["spec"]["versions"][position]["schema"]["openAPIV3Schema"]["properties"][
            "spec"
        ]["properties"]
        fields["later"] = {"type": "string", "default": default}
    assert (await api.put(f"{CRDS}/things.example.com", crd)).code == 200
    async with asyncio.timeout(120):
        while "later" not in (await api.get(f"{THINGS}/one")).body["spec"]:
            pass
    for path in ("v1", "v1beta1"):
        (item,) = (await api.get(f"/apis/example.com/{path}/things")).body["items"]
        assert (item["apiVersion"], item["spec"]["later"]) == (f"example.com/{path}", "of v1")


async def test_deprecated_version_warns(api: APIClient) -> None:
    versions = [version("v1"), version("v1beta1", storage=False, deprecated=True)]
    versions.append(
        version("v1alpha1", storage=False, deprecated=True, deprecationWarning="do not")
    )
    await establish(api, build_crd(*versions))
    deprecated = await api.get("/apis/example.com/v1beta1/things")
    assert (
        deprecated.headers["Warning"]
        == '299 - "example.com/v1beta1 Thing is deprecated; use example.com/v1 Thing"'
    )
    old_object = await api.get("/apis/example.com/v1alpha1/things")
    assert old_object.headers["Warning"] == '299 - "do not"'
    assert "Warning" not in (await api.get("/apis/example.com/v1/things")).headers


async def test_field_selector_uses_selectable_fields(api: APIClient) -> None:
    await establish(api, build_crd(version(selectableFields=[{"jsonPath": ".spec.mode"}])))
    await api.post(THINGS, thing("one", mode="a"))
    await api.post(THINGS, thing("two", mode="b", size=9))
    selected = (await api.get(THINGS, {"fieldSelector": "spec.mode=b"})).body
    assert [each["metadata"]["name"] for each in selected["items"]] == ["two"]
    refused = await api.get(THINGS, {"fieldSelector": "spec.size=9"})
    assert refused.code == 400
    assert "field label not supported: spec.size" in refused.body["message"]


async def test_table_has_additional_printer_columns(api: APIClient) -> None:
    columns = [{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}]
    await establish(api, build_crd(version(additionalPrinterColumns=columns)))
    await api.post(THINGS, thing(mode="a"))
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await api.get(THINGS, headers=headers)).body
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Mode"]
    assert [row["cells"] for row in table["rows"]] == [["one", "a"]]


async def test_deleted_crd_deletes_its_objects(api: APIClient) -> None:
    await establish(api, build_crd())
    await api.post(THINGS, thing())
    assert (await api.delete(f"{CRDS}/things.example.com")).code == 200
    await api.until(f"{CRDS}/things.example.com", 404)
    await api.until(f"{THINGS}/one", 404)
    await establish(api, build_crd())
    assert (await api.get(THINGS)).body["items"] == []


async def test_stored_version_cannot_be_removed(api: APIClient) -> None:
    await establish(api, build_crd(version("v1"), version("v2", storage=False)))
    crd = (await api.get(f"{CRDS}/things.example.com")).body
    crd["spec"]["versions"] = [{**crd["spec"]["versions"][1], "storage": True}]
    refused = await api.put(f"{CRDS}/things.example.com", crd)
    assert refused.code == 422
    assert "status.storedVersions[0]" in refused.body["message"]


async def test_applies_fail_while_managers_own_fields_in_a_removed_version(api: APIClient) -> None:
    group = "removed.example.com"
    crd = build_crd(version("v1"), version("v2", storage=False), group=group)
    await establish(api, crd)
    name = crd["metadata"]["name"]
    body = {"kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    first, second = (f"/apis/{group}/{each}/namespaces/default/things" for each in ("v1", "v2"))
    created = await api.apply(f"{first}/a", {**body, "apiVersion": f"{group}/v1"}, "one")
    assert created.code == 201
    stored = [version("v1", storage=False), version("v2")]
    assert (await api.merge(f"{CRDS}/{name}", {"spec": {"versions": stored}})).code == 200
    rewritten = await api.merge(f"{second}/a", {})
    while (
        rewritten.body["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]
    ):
        rewritten = await api.merge(f"{second}/a", {})
    unserved = [version("v1", served=False, storage=False), version("v2")]
    assert (await api.merge(f"{CRDS}/{name}", {"spec": {"versions": unserved}})).code == 200
    await api.until(first, 404)
    await api.until(second, 200)
    assert (
        await api.merge(f"{CRDS}/{name}/status", {"status": {"storedVersions": ["v2"]}})
    ).code == 200
    assert (await api.merge(f"{CRDS}/{name}", {"spec": {"versions": [version("v2")]}})).code == 200
    message = f"request to convert CR to an invalid group/version: {group}/v1"
    for manager, force in (("one", "false"), ("one", "true"), ("two", "true")):
        refused = await api.apply(
            f"{second}/a", {**body, "apiVersion": f"{group}/v2"}, manager, {"force": force}
        )
        assert (refused.code, refused.body["message"]) == (500, message)
    patched = await api.merge(f"{second}/a", {"spec": {"size": 2}})
    assert (patched.code, patched.body["metadata"].get("managedFields")) == (200, None)
    applied = await api.apply(
        f"{second}/a", {**body, "apiVersion": f"{group}/v2"}, "one", {"force": "true"}
    )
    assert applied.code == 200, applied.body


OTHERS = "/apis/example.com/v2/namespaces/default/things"
REMOVED = "request to convert CR from an invalid group/version: example.com/v1"


async def _remove_version_with_objects(api: APIClient) -> None:
    """Create an object in v1, then let the CRD forget v1 as an operator does that migrates no object."""
    await establish(api, build_crd(version(), version("v2", storage=False)))
    assert (await api.post(THINGS, thing())).code == 201
    crd = f"{CRDS}/things.example.com"
    stored = version(storage=False), version("v2")
    assert (await api.merge(crd, {"spec": {"versions": list(stored)}})).code == 200
    assert (await api.merge(f"{crd}/status", {"status": {"storedVersions": ["v2"]}})).code == 200
    assert (await api.merge(crd, {"spec": {"versions": [version("v2")]}})).code == 200
    while (await api.get(f"{OTHERS}/one")).code != 500:
        pass


async def test_object_in_a_removed_version_can_neither_be_read_nor_written(api: APIClient) -> None:
    await _remove_version_with_objects(api)
    other = {**thing(), "apiVersion": "example.com/v2"}
    answers = [
        await api.get(f"{OTHERS}/one"),
        await api.merge(f"{OTHERS}/one", {"spec": {"size": 4}}),
        await api.apply(f"{OTHERS}/one", other, "one"),
        await api.delete(f"{OTHERS}/one"),
        await api.get(OTHERS, {"limit": "1"}),
        await api.delete(OTHERS),
    ]
    assert {(answer.code, answer.body["message"]) for answer in answers} == {(500, REMOVED)}
    assert (await api.post(OTHERS, other)).code == 409


async def test_list_and_watch_wait_until_no_object_is_in_a_removed_version(api: APIClient) -> None:
    await _remove_version_with_objects(api)
    other = {**thing("two"), "apiVersion": "example.com/v2"}
    assert (await api.post(OTHERS, other)).code == 201
    for query in ({}, {"resourceVersion": "0"}, {"labelSelector": "a=b"}, {"watch": "true"}):
        answer = await api.get(OTHERS, query)
        assert answer.code == 429, query
        assert answer.body["details"] == {"retryAfterSeconds": 1}
        assert answer.body["message"] == (
            f"storage is (re)initializing: failed to list example.com/v2, Kind=Thing: {REMOVED}"
        )
    versions = [version(storage=False), version("v2")]
    await api.merge(f"{CRDS}/things.example.com", {"spec": {"versions": versions}})
    listed = await api.until(OTHERS, 200)
    assert [item["metadata"]["name"] for item in listed.body["items"]] == ["one", "two"]


async def test_crd_waits_for_objects_in_a_removed_version(api: APIClient) -> None:
    await _remove_version_with_objects(api)
    crd = f"{CRDS}/things.example.com"
    assert (await api.delete(crd)).code == 200
    condition = None
    while condition is None or condition["reason"] != "InstanceDeletionFailed":
        conditions = (await api.get(crd)).body["status"]["conditions"]
        condition = next((each for each in conditions if each["type"] == "Terminating"), None)
    assert condition["status"] == "True"
    assert condition["message"] == (
        "could not list instances: storage is (re)initializing: failed to list example.com/v2, "
        f"Kind=Thing: {REMOVED}"
    )
    versions = [version(storage=False), version("v2")]
    await api.merge(crd, {"spec": {"versions": versions}})
    await api.until(crd, 404)
