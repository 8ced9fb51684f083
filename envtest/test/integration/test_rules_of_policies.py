"""Rules of expressions, policies and custom resources, which random requests have shown (``make differential``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from test.integration.test_differential import crd, custom
from test.support.rules import CUSTOM, JSON_PATCH, METADATA_LIST, NOTE, causes


async def test_a_custom_resource_is_not_a_list(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", NOTE))
    await api.post(f"{CUSTOM}/notes", custom("Note"))
    answer = await api.request("GET", f"{CUSTOM}/notes/a", headers={"Accept": METADATA_LIST})
    assert (answer.code, answer.body["message"]) == (500, "content is not a list")


async def test_unchanged_values_that_break_a_rule_are_warned_about(
    plane: ControlPlane, api: APIClient
) -> None:
    definition = crd("notes", {"a": {"type": "string"}, "b": {"type": "string"}})
    await plane.install_crds(definition)
    await api.post(f"{CUSTOM}/notes", custom("Note", a="wrong"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rule = {"rule": "self != 'wrong'", "message": "is wrong"}
    schema["properties"]["spec"]["properties"]["a"]["x-kubernetes-validations"] = [rule]
    await plane.install_crds(definition)
    path = f"{CUSTOM}/notes/a"

    async def warns() -> bool:
        answer = await api.merge(path, {"spec": {"b": "x"}}, {"dryRun": "All"})
        assert answer.code == 200
        return (
            answer.headers.get("Warning") == '299 - "spec.a: Invalid value: \\"wrong\\": is wrong"'
        )

    for _ in range(600):  # kube-apiserver serves the new schema later
        if await warns():
            break
        await asyncio.sleep(0.05)
    assert await warns()


async def test_rules_cannot_read_whole_floats_of_integers(
    plane: ControlPlane, api: APIClient
) -> None:
    sizes = crd("notes", {"size": {"type": "integer"}, "name": {"type": "string"}})
    schema = sizes["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    decided = {"rule": "self.name == 'a' || self.size < 9"}
    schema["x-kubernetes-validations"] = [decided, {"rule": "self.size < 5", "message": "large"}]
    await plane.install_crds(sizes)
    answer = await api.post(f"{CUSTOM}/notes", custom("Note", name="a", size=1.0))
    assert answer.code == 422
    error = "invalid data, expected int, got float64 evaluating rule: large"
    assert causes(answer.body) == [("spec", f'Invalid value: "object": {error}')]


async def test_rules_match_strings_with_control_characters(
    plane: ControlPlane, api: APIClient
) -> None:
    rule = {"rule": "self.matches('^[a-z]*$')"}
    named = {"type": "string", "x-kubernetes-validations": [rule], "maxLength": 9}
    await plane.install_crds(crd("notes", {"name": named}))
    answer = await api.post(f"{CUSTOM}/notes", custom("Note", name="a\0b"))
    assert answer.code == 422


async def test_symbols_are_allowed_in_hostnames(plane: ControlPlane, api: APIClient) -> None:
    await plane.install_crds(crd("notes", {"name": {"type": "string", "format": "hostname"}}))
    codes = []
    for name in ("a=b", "é", "a_b", "a--b"):
        path = f"{CUSTOM}/notes?dryRun=All"
        codes.append((await api.post(path, custom("Note", name=name))).code)
    assert codes == [201, 201, 422, 422]


async def test_a_default_of_another_version_is_a_change(
    plane: ControlPlane, api: APIClient
) -> None:
    notes = crd("notes", {"a": {"type": "string"}, "added": {"type": "string", "default": "x"}})
    older = crd("notes", {"a": {"type": "string"}})["spec"]["versions"][0]
    notes["spec"]["versions"].append({**older, "name": "v1beta1", "storage": False})
    await plane.install_crds(notes)
    older_path = CUSTOM.replace("/v1/", "/v1beta1/")
    body = {**custom("Note", a="b"), "apiVersion": "rules.example.com/v1beta1"}
    created = await api.post(f"{older_path}/notes", body)
    first = await api.merge(f"{CUSTOM}/notes/a", {})
    second = await api.merge(f"{CUSTOM}/notes/a", {})
    versions = [each.body["metadata"]["resourceVersion"] for each in (created, first, second)]
    assert versions[0] != versions[1] == versions[2]
    assert first.body["spec"] == {"a": "b", "added": "x"}


async def test_only_mutating_policies_without_variables_declare_them(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "variables.v == 1"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert "undeclared reference to 'variables'" in causes(answer.body)[0][1]
    spec.pop("validations")
    expression = "Object{metadata: Object.metadata{name: variables.v}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    spec |= {"mutations": [mutation], "reinvocationPolicy": "Never"}
    path = path.replace("validating", "mutating")
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert "undefined field 'v'" in causes(answer.body)[0][1]


async def test_an_undeclared_path_is_reported_at_its_first_name(api: APIClient) -> None:
    spec = {"selectors": [{"cel": {"expression": "1 == k8s.io"}}]}
    body = {"metadata": {"name": "a"}, "spec": spec}
    answer = await api.post("/apis/resource.k8s.io/v1/deviceclasses", body)
    error = "ERROR: <input>:1:6: undeclared reference to 'k8s' (in container '')\n"
    assert f"{error} | 1 == k8s.io\n | .....^" in causes(answer.body)[0][1]


async def test_invalid_variables_are_declared_in_policies(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "1", "expression": "1"}],
        "validations": [{"expression": "variables.v == 1"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    answer = await api.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert "undefined field 'v'" in dict(causes(answer.body))["spec.validations[0].expression"]


async def test_errors_of_expressions_contain_nul(api: APIClient) -> None:
    spec = {"selectors": [{"cel": {"expression": "a\0b"}}]}
    body = {"metadata": {"name": "nul"}, "spec": spec}
    answer = await api.post("/apis/resource.k8s.io/v1/deviceclasses", body)
    ((_, message),) = causes(answer.body)
    assert "token recognition error at: '\0'\n | a\0b\n | .^\nERROR: <input>:1:3:" in message


async def test_objects_that_no_webhook_converts(plane: ControlPlane, api: APIClient) -> None:
    definition = crd("stones", NOTE)
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"].append({**version, "name": "v2", "storage": False})
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    await plane.install_crds(definition)
    await api.post(f"{CUSTOM}/stones", custom("Stone"))
    path = f"{CUSTOM}/stones".replace("/v1/", "/v2/")
    answer = await api.get(path, {"labelSelector": "a=b"})
    assert answer.code == 500
    assert (
        "conversion webhook for rules.example.com/v1, Kind=Stone failed" in answer.body["message"]
    )
    answer = await api.get(path, {"fieldSelector": "metadata.name=other"})
    assert answer.body["items"] == []
    answer = await api.get(path, {"watch": "1", "timeoutSeconds": "1"})
    assert answer.code == 200
    assert answer.body["type"] == "ERROR"
    assert answer.body["object"]["code"] == 504


async def test_only_variables_with_an_expression_are_declared(api: APIClient) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "v"}],
        "validations": [{"expression": "variables.v == 1"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    answer = await api.post(path, {"metadata": {"name": "none"}, "spec": spec})
    assert sorted(field for field, _ in causes(answer.body)) == [
        "spec.validations[0].expression",
        "spec.variables[0].expression",
    ]


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("variables == 1", "'(kubernetes.variables, int)'"),
        ("request == 1", "'(kubernetes.AdmissionRequest, int)'"),
        ("request.userInfo == 1", "'(kubernetes.UserInfo, int)'"),
        ("namespaceObject.status.conditions == 1", "'(list(kubernetes.NamespaceCondition), int)'"),
        ("variables.v.x", "type 'int' does not support field selection"),
    ],
)
async def test_errors_of_expressions_name_the_types_of_admission(
    api: APIClient, expression: str, message: str
) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "v", "expression": "1"}],
        "validations": [{"expression": expression}],
    }
    answer = await api.post(POLICIES, {"metadata": {"name": "types"}, "spec": spec})
    assert message in dict(causes(answer.body))["spec.validations[0].expression"]


def patched(key: str, value: Any) -> list[dict[str, Any]]:
    """Return a JSON patch that replaces a field of the object."""
    return [{"op": "replace", "path": f"/{key}", "value": value}]


async def test_a_patch_can_give_a_custom_resource_another_version_only_with_errors(
    api: APIClient,
) -> None:
    definition = crd("versions", NOTE)
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"{CUSTOM}/versions"
    await api.until(path)
    await api.post(path, custom("Version", a="b"))
    for version, group in (
        ("v9", ""),
        ("other/v1", ".other"),
        ("rules.example.com/v9", ".rules.example.com"),
    ):
        answer = await api.merge(f"{path}/a", {"apiVersion": version, "kind": "F"})
        assert answer.code == 422
        assert answer.body["message"].startswith(f'F{group} "a" is invalid: ')
        assert sorted(causes(answer.body)) == [
            ("apiVersion", f'Invalid value: "{version}": must be rules.example.com/v1'),
            ("kind", 'Invalid value: "F": must be Version'),
        ]
    answer = await api.merge(f"{path}/a", {"apiVersion": "rules.example.com/v9"})
    assert "unknown field" in answer.headers["Warning"]
    for value, problem in (
        ("a/b/c", ": unexpected GroupVersion string: a/b/c"),
        (None, ": .apiVersion accessor error: <nil> is of the type <nil>, expected string"),
    ):
        patch = patched("apiVersion", value)
        answer = await api.request("PATCH", f"{path}/a", patch, content_type=JSON_PATCH)
        assert causes(answer.body)[0][0] == "patch"
        assert answer.body["message"].endswith(problem)
