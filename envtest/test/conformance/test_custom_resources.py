"""CustomResourceDefinitions: their objects, defaults, field validation, discovery and published schemas."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from envtest import ControlPlane
from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KUBECTL = shutil.which("kubectl") or ""

PORTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
    "items": {
        "type": "object",
        "required": ["containerPort", "protocol"],
        "properties": {
            "containerPort": {"type": "integer", "format": "int32"},
            "name": {"type": "string"},
            "protocol": {"type": "string"},
        },
    },
}
FIELDS = {
    "foo": {"type": "string"},
    "cronSpec": {"type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"},
    "ports": PORTS,
}
FOO = {
    "type": "object",
    "description": "Foo CRD for Testing",
    "properties": {
        "spec": {
            "type": "object",
            "description": "Specification of Foo",
            "properties": {
                "bars": {
                    "type": "array",
                    "description": "List of Bars and their specs.",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string", "description": "Name of Bar."},
                            "feeling": {"type": "string", "enum": ["Great", "Down"]},
                            "bazs": {
                                "type": "array",
                                "items": {"type": "string"},
                                "description": "List of Bazs.",
                            },
                        },
                    },
                }
            },
        },
        "status": {"type": "object", "description": "Status of Foo"},
    },
}
NESTED = {
    "type": "object",
    "description": "preserve-unknown-properties in nested field for Testing",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"dummy": {"type": "string"}},
        }
    },
}


def crd(
    group: str,
    *versions: str,
    schema: dict[str, Any] = ANYTHING,
    scope: str = "Namespaced",
    kind: str = "Noxu",
    **more: Any,
) -> dict[str, Any]:
    """Return a CRD with these versions, the first of which is stored."""
    plural = f"{kind.lower()}s"
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    listed = [
        {
            "name": name,
            "served": True,
            "storage": index == 0,
            "schema": {"openAPIV3Schema": schema},
            **more,
        }
        for index, name in enumerate(versions)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": listed},
    }


async def establish(client: SpecClient, definition: dict[str, Any]) -> str:
    """Create a CRD, wait until it is established, and return the path of its objects in all namespaces."""
    name = (await client.create(CRDS, definition))["metadata"]["name"]
    await client.eventually(
        f"{CRDS}/{name}",
        lambda body: any(
            each["type"] == "Established" and each["status"] == "True"
            for each in (body.get("status") or {}).get("conditions") or ()
        ),
    )
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"


@plays(
    "CustomResourceDefinition resources Simple CustomResourceDefinition creating/deleting custom resource definition"
    " objects works",
    "CustomResourceDefinition resources Simple CustomResourceDefinition listing custom resource definition objects"
    " works",
)
async def test_labeled_definitions_are_listed_and_deleted(client: SpecClient) -> None:
    for number in range(10):
        definition = crd(f"group{number}.example.com", "v1")
        definition["metadata"]["labels"] = {"e2e-list-test-uuid": "one"}
        await establish(client, definition)
    other = crd("other.example.com", "v1")
    await establish(client, other)
    selector = {"labelSelector": "e2e-list-test-uuid=one"}
    assert len((await client.read(CRDS, **selector))["items"]) == 10
    assert (await client.delete(CRDS, query=selector)).code == 200
    await client.eventually(CRDS, lambda body: not body["items"], selector)
    name = other["metadata"]["name"]
    assert await client.names(CRDS) == [name]
    assert (await client.delete(f"{CRDS}/{name}")).code == 200
    await client.vanished(f"{CRDS}/{name}")


@plays(
    "CustomResourceDefinition resources Simple CustomResourceDefinition getting/updating/patching custom resource"
    " definition status sub-resource works"
)
async def test_status_of_a_definition(client: SpecClient) -> None:
    definition = crd("status.example.com", "v1")
    await establish(client, definition)
    one = f"{CRDS}/{definition['metadata']['name']}"
    assert (await client.read(f"{one}/status"))["metadata"]["name"] == definition["metadata"][
        "name"
    ]
    condition = {"type": "UpdatedType", "status": "True", "message": "updated", "reason": "Updated"}

    updated = await client.update(
        one, lambda obj: obj["status"]["conditions"].append(dict(condition)), "/status"
    )
    assert updated["status"]["conditions"][-1]["type"] == "UpdatedType"
    patch = {
        "status": {"conditions": [{**condition, "type": "PatchedType", "lastTransitionTime": None}]}
    }
    patched = await client.merge(f"{one}/status", patch)
    assert [each["type"] for each in patched.body["status"]["conditions"]] == ["PatchedType"]


@plays(
    "CustomResourceDefinition resources should include custom resource definition resources in discovery documents",
    "Discovery should locate the groupVersion and a resource within each APIGroup",
    "Discovery should validate PreferredVersion for each APIGroup",
)
async def test_discovery_of_each_group(client: SpecClient) -> None:
    groups = (await client.read("/apis"))["groups"]
    assert "apiextensions.k8s.io" in [group["name"] for group in groups]
    for group in groups:
        document = await client.read(f"/apis/{group['name']}")
        versions = [each["groupVersion"] for each in document["versions"]]
        assert document["preferredVersion"]["groupVersion"] in versions
        assert group["preferredVersion"] == document["preferredVersion"]
        for version in versions:
            resources = await client.read(f"/apis/{version}")
            assert resources["groupVersion"] == version
            assert any(each["name"] for each in resources["resources"])
    names = [
        each["name"] for each in (await client.read("/apis/apiextensions.k8s.io/v1"))["resources"]
    ]
    assert "customresourcedefinitions" in names


@plays(
    "AggregatedDiscovery should support raw aggregated discovery endpoint Accept headers",
    "AggregatedDiscovery should support raw aggregated discovery request for CRDs",
    "AggregatedDiscovery should support aggregated discovery interface",
    "AggregatedDiscovery should support aggregated discovery interface for CRDs",
)
async def test_aggregated_discovery(client: SpecClient) -> None:
    client_go = f"{AGGREGATED},{AGGREGATED.replace('v=v2', 'v=v2beta1')},application/json"
    await establish(client, crd("aggregated.example.com", "v1"))
    for accept in (AGGREGATED, client_go):
        found = set()
        for path in ("/api", "/apis"):
            response = await client.get(path, headers={"Accept": accept})
            assert (response.code, response.body["kind"]) == (200, "APIGroupDiscoveryList")
            for group in response.body["items"]:
                for version in group["versions"]:
                    name = group["metadata"].get("name", "")
                    found |= {
                        (name, version["version"], each["resource"])
                        for each in version["resources"]
                    }
        assert found >= {
            ("", "v1", "namespaces"),
            ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
            ("apiregistration.k8s.io", "v1", "apiservices"),
            ("autoscaling", "v1", "horizontalpodautoscalers"),
            ("autoscaling", "v2", "horizontalpodautoscalers"),
            ("authentication.k8s.io", "v1", "tokenreviews"),
            ("events.k8s.io", "v1", "events"),
            ("storage.k8s.io", "v1", "csinodes"),
            ("aggregated.example.com", "v1", "noxus"),
        }


@plays(
    "CustomResourceDefinition Watch CustomResourceDefinition Watch watch on custom resource definition objects"
)
async def test_watches_of_custom_resources(client: SpecClient) -> None:
    path = await establish(client, crd("watch.example.com", "v1", scope="Cluster"))
    kind = {"apiVersion": "watch.example.com/v1", "kind": "Noxu"}
    for name in ("name1", "name2"):
        async with client.watching(path, fieldSelector=f"metadata.name={name}") as watch:
            await client.create(
                path, {**kind, "metadata": {"name": name}, "content": {"key": "value"}}
            )
            await client.merge(f"{path}/{name}", {"dummy": "test"})
            assert (await client.delete(f"{path}/{name}")).code == 200
            for event in ("ADDED", "MODIFIED", "DELETED"):
                await matching(watch, event, lambda obj, name=name: obj["metadata"]["name"] == name)


@plays(
    "CustomResourceDefinition resources custom resource defaulting for requests and from storage works"
)
async def test_defaults_are_set_in_requests_and_from_storage(client: SpecClient) -> None:
    path = await establish(client, crd("defaults.example.com", "v1", scope="Cluster"))
    definition = f"{CRDS}/noxus.defaults.example.com"
    kind = {"apiVersion": "defaults.example.com/v1", "kind": "Noxu"}
    schema = "/spec/versions/0/schema/openAPIV3Schema/properties"
    await client.create(path, {**kind, "metadata": {"name": "one"}})
    value = {"a": {"type": "string", "default": "A"}, "b": {"type": "string"}}
    assert (await client.json_patch(definition, ("add", schema, value))).code == 200
    await client.eventually(f"{path}/one", lambda body: body.get("a") == "A")
    await client.create(path, {**kind, "metadata": {"name": "two"}})
    value = {"a": {"type": "string"}, "b": {"type": "string", "default": "B"}}
    assert (await client.json_patch(definition, ("replace", schema, value))).code == 200
    two = await client.eventually(f"{path}/two", lambda body: body.get("b") == "B")
    assert two["a"] == "A"
    assert "a" not in await client.read(f"{path}/one")


DUPLICATES = b"""{
"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "my-dep", "labels": {"app": "nginx"}},
"spec": {
  "unknownField": "foo", "replicas": 2, "replicas": 3,
  "selector": {"matchLabels": {"app": "nginx"}},
  "template": {"metadata": {"labels": {"app": "nginx"}}, "spec": {"containers": [{"name": "n", "image": "nginx"}]}}
}}"""


@plays(
    "FieldValidation should detect unknown and duplicate fields of a typed object",
    "FieldValidation should detect unknown metadata fields of a typed object",
)
async def test_unknown_and_duplicate_fields_of_built_in_objects(
    client: SpecClient, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    query = {"fieldManager": "field_validation_mgr", "fieldValidation": "Strict"}
    metadata = DUPLICATES.replace(b'"name"', b'"unknownMeta": "foo", "name"', 1).replace(
        b'"replicas": 2,', b""
    )
    metadata = metadata.replace(b'"unknownField": "foo",', b"")
    for body, message in (
        (
            DUPLICATES,
            'strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas"',
        ),
        (metadata, 'strict decoding error: unknown field "metadata.unknownMeta"'),
    ):
        response = await client.request(
            "POST", path, body, query=query, content_type="application/json"
        )
        assert response.code == 400
        assert message in response.body["message"]


def strict(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": FIELDS | properties}},
    }


BODY = """
apiVersion: {group}/v1beta1
kind: Noxu
metadata:
  name: mytest
  finalizers:
  - test-finalizer
spec:
  foo: foo1
  cronSpec: "* * * * */5"
  ports:
  - name: x
    containerPort: 80
    protocol: TCP"""
EMBEDDED = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": {"type": "object"},
    },
}


@plays(
    "FieldValidation should create/apply a valid CR for CRD with validation schema",
    "FieldValidation should create/apply a CR with unknown fields for CRD with no validation schema",
    "FieldValidation should create/apply an invalid CR with extra properties for CRD with validation schema",
    "FieldValidation should detect unknown metadata fields in both the root and embedded object of a CR",
    "FieldValidation should detect duplicates in a CR when preserving unknown fields",
)
@pytest.mark.parametrize(
    ("schema", "changes", "code", "messages"),
    [
        (strict(), (), 201, ()),
        (ANYTHING, (("foo: foo1", "unknown: uk1"),), 201, ()),
        (
            strict(),
            (("spec:", "unknownField: unknown\nspec:"),),
            500,
            (".unknownField: field not declared in schema",),
        ),
        (
            strict(template=EMBEDDED),
            (
                ("  name: mytest", "  name: mytest\n  unknownMeta: unknown"),
                (
                    "  foo:",
                    "  template:\n    apiversion: a/v1\n    kind: Sub\n    metadata: {unknownSubMeta: u}\n  foo:",
                ),
            ),
            500,
            (
                ".metadata.unknownMeta: field not declared in schema",
                ".spec.template.metadata.unknownSubMeta: field not declared",
            ),
        ),
        (
            {**strict(), "x-kubernetes-preserve-unknown-fields": True},
            (("  foo: foo1", "  unknown: uk1\n  foo: foo1\n  foo: foo2"),),
            400,
            ('line 11: key "foo" already set in map',),
        ),
    ],
    ids=["valid", "no-schema", "unknown", "metadata", "duplicate"],
)
async def test_fields_of_applied_custom_resources(
    client: SpecClient,
    schema: Any,
    changes: tuple[tuple[str, str], ...],
    code: int,
    messages: tuple[str, ...],
) -> None:
    definition = crd("fields.example.com", "v1beta1", "v1beta2", schema=schema, scope="Cluster")
    path = await establish(client, definition)
    text = BODY.format(group="fields.example.com")
    for old, new in changes:
        text = text.replace(old, new, 1)
    response = await client.request(
        "PATCH",
        f"{path}/mytest",
        text.encode(),
        query={"fieldManager": "field_validation_mgr", "fieldValidation": "Strict"},
        content_type="application/apply-patch+yaml",
    )
    assert response.code == code, response.body
    assert not messages or any(message in response.body["message"] for message in messages)


def definition_name(group: str, version: str, kind: str = "Noxu") -> str:
    return ".".join([*reversed(group.split(".")), version, kind])


async def published(client: SpecClient, name: str, schema: dict[str, Any] | None) -> None:
    """Wait until OpenAPI v2 has this schema without the fields of all objects, or with ``None``, no schema."""

    def matches(body: Any) -> bool:
        found = body["definitions"].get(name)
        if found is None or schema is None:
            return found is schema
        properties = {
            key: value for key, value in found.get("properties", {}).items() if key not in STANDARD
        }
        own = {
            key: value
            for key, value in found.items()
            if key not in ("properties", GROUP_VERSION_KIND)
        }
        return bool(own | ({"properties": properties} if properties else {}) == schema)

    await client.eventually("/openapi/v2", matches)


STANDARD = frozenset({"apiVersion", "kind", "metadata"})
GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
WALDO = {
    "type": "object",
    "description": "Waldo CRD for Testing",
    "properties": {"spec": {"type": "object"}},
}


@plays(
    "CustomResourcePublishOpenAPI works for multiple CRDs of different groups",
    "CustomResourcePublishOpenAPI works for multiple CRDs of same group but different versions",
    "CustomResourcePublishOpenAPI works for multiple CRDs of same group and version but different kinds",
)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("foo.example.com", "v1", "Noxu"), ("waldo.example.com", "v1beta1", "Noxu")),
        (("common.example.com", "v4", "Noxu"), ("common.example.com", "v5", "Waldo")),
        (("common.example.com", "v6", "Noxu"), ("common.example.com", "v6", "Waldo")),
    ],
    ids=["groups", "versions", "kinds"],
)
async def test_schemas_of_several_definitions_are_published(
    client: SpecClient, first: Any, second: Any
) -> None:
    for (group, version, kind), schema in ((first, FOO), (second, WALDO)):
        await establish(client, crd(group, version, schema=schema, kind=kind))
    for names, schema in ((first, FOO), (second, WALDO)):
        await published(client, definition_name(*names), schema)
    for group, _, kind in (first, second):
        assert (await client.delete(f"{CRDS}/{kind.lower()}s.{group}")).code == 200
    for names in (first, second):
        await published(client, definition_name(*names), None)


@plays("CustomResourcePublishOpenAPI updates the published spec when one version gets renamed")
async def test_schema_of_a_renamed_version_is_published(client: SpecClient) -> None:
    group = "multi-ver.example.com"
    await establish(client, crd(group, "v2", "v3", schema=FOO))
    one = f"{CRDS}/noxus.{group}"
    for version in ("v2", "v3"):
        await published(client, definition_name(group, version), FOO)
    path = "/spec/versions/1/name"
    assert (await client.json_patch(one, ("test", path, "v3"), ("replace", path, "v4"))).code == 200
    await published(client, definition_name(group, "v4"), FOO)
    await published(client, definition_name(group, "v3"), None)
    await published(client, definition_name(group, "v2"), FOO)


@plays(
    "CustomResourcePublishOpenAPI removes definition from spec when one version gets changed to not be served"
)
async def test_schema_of_a_version_that_is_not_served_is_removed(client: SpecClient) -> None:
    group = "multi-to-single-ver.example.com"
    await establish(client, crd(group, "v5", "v6alpha1", schema=FOO))
    for version in ("v5", "v6alpha1"):
        await published(client, definition_name(group, version), FOO)
    await client.update(
        f"{CRDS}/noxus.{group}", lambda obj: obj["spec"]["versions"][1].update(served=False)
    )
    await published(client, definition_name(group, "v6alpha1"), None)
    await published(client, definition_name(group, "v5"), FOO)


async def kubectl(
    plane: ControlPlane, folder: Path, *arguments: str, stdin: str = ""
) -> tuple[int, str]:
    """Run kubectl; return its exit code and its output and errors."""
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "KUBECONFIG": str(folder / "kubeconfig"),
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
        },
    )
    plane.kubeconfig(folder / "kubeconfig")
    output, _ = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, output.decode()


@plays(
    "CustomResourcePublishOpenAPI works for CRD with validation schema",
    "CustomResourcePublishOpenAPI works for CRD without validation schema",
    "CustomResourcePublishOpenAPI works for CRD preserving unknown fields at the schema root",
    "CustomResourcePublishOpenAPI works for CRD preserving unknown fields in an embedded object",
)
@pytest.mark.skipif(not KUBECTL, reason="kubectl is not on the PATH")
@pytest.mark.parametrize(
    ("schema", "expected", "content", "explained"),
    [
        (
            FOO,
            FOO,
            {"spec": {"bars": [{"name": "test-bar"}]}},
            {
                "noxus": r"DESCRIPTION:.*Foo CRD for Testing.*FIELDS:.*apiVersion.*<string>.*APIVersion defines"
                r".*spec.*<Object>.*Specification of Foo",
                "noxus.metadata": r"DESCRIPTION:.*Standard object's metadata.*FIELDS:.*creationTimestamp.*<string>"
                r".*CreationTimestamp is a timestamp",
                "noxus.spec": r"DESCRIPTION:.*Specification of Foo.*FIELDS:.*bars.*<\[\]Object>.*List of Bars",
                "noxus.spec.bars": r"bars.*<\[\]Object>.*DESCRIPTION:.*List of Bars.*FIELDS:.*bazs.*<\[\]string>"
                r".*List of Bazs.*name.*<string>.*Name of Bar",
            },
        ),
        (
            ANYTHING,
            {"type": "object"},
            {"a": {"b": [{"c": "d"}]}},
            {"noxus": r"DESCRIPTION:.*<empty>"},
        ),
        (
            {**ANYTHING, "description": "at the root", "properties": {"spec": {"type": "object"}}},
            None,
            {"a": {"b": [{"c": "d"}]}},
            {"noxus": r"KIND:.*Noxu"},
        ),
        (
            NESTED,
            None,
            {"spec": {"a": None, "b": [{"c": "d"}]}},
            {"noxus": r"DESCRIPTION:.*preserve-unknown-properties in nested field for Testing"},
        ),
    ],
    ids=["schema", "without-schema", "root", "nested"],
)
async def test_kubectl_creates_and_explains_custom_resources(
    cluster: ControlPlane,
    client: SpecClient,
    namespace: str,
    tmp_path: Path,
    schema: Any,
    expected: Any,
    content: dict[str, Any],
    explained: dict[str, str],
) -> None:
    group = "explain.example.com"
    await establish(client, crd(group, "v1", schema=schema))
    if expected is not None:
        await published(client, definition_name(group, "v1"), expected)
    body = json.dumps(
        {"apiVersion": f"{group}/v1", "kind": "Noxu", "metadata": {"name": "test"}, **content}
    )
    for verb in ("create", "apply"):
        code, output = await kubectl(
            cluster, tmp_path, "-n", namespace, verb, "-f", "-", stdin=body
        )
        assert code == 0, output
        code, output = await kubectl(cluster, tmp_path, "-n", namespace, "delete", "noxus", "test")
        assert code == 0, output
    for name, pattern in explained.items():
        code, output = await kubectl(cluster, tmp_path, "explain", name)
        assert (code, re.search(pattern, output, re.DOTALL) is not None) == (0, True), output
    if schema is FOO:
        code, output = await kubectl(cluster, tmp_path, "explain", "noxus.spec.bars2")
        assert (code, 'field "bars2" does not exist' in output) == (1, True), output
