"""``envtest validate``: the problems of objects, and how they are reported."""

from __future__ import annotations

import asyncio
import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from envtest.command import command
from envtest.configuration.kubernetes_version import parse_version
from envtest.manifest_check.checker import check_manifests
from envtest.manifest_check.documents import read_source
from test.support.toys import toys_crd

CRD = json.dumps(
    toys_crd(
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "deprecated": True,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {"size": {"type": "integer", "default": 1}},
                            "x-kubernetes-validations": [
                                {"rule": "self.size < 9", "message": "too large"}
                            ],
                        }
                    },
                }
            },
        }
    )
)
NAMESPACE = (
    "{apiVersion: v1, kind: Namespace, metadata: {name: ns, labels: "
    "{pod-security.kubernetes.io/enforce: baseline}}}"
)
POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: "object.spec.replicas <= int(params.data.limit)", message: too many}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec:
  policyName: p
  paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}
  validationActions: [Deny]
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: limits}, data: {limit: "3"}}
"""


def deployment(spec: str, labels: str = "{a: b}") -> str:
    return textwrap.dedent(
        f"""
        apiVersion: apps/v1
        kind: Deployment
        metadata: {{name: d}}
        spec:
          {spec}
          selector: {{matchLabels: {{a: b}}}}
          template:
            metadata: {{labels: {labels}}}
            spec:
              containers:
              - {{name: c, image: i}}
        """
    )


def pod(spec: str = "", **metadata: str) -> str:
    shown = json.dumps({"name": "p", **metadata})
    return f"apiVersion: v1\nkind: Pod\nmetadata: {shown}\nspec:\n  containers: [{{name: c, image: i}}]\n  {spec}\n"


def crd(version: str) -> str:
    return (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        "metadata: {name: things.acme.io}\nspec:\n  group: acme.io\n  scope: Namespaced\n"
        "  names: {plural: things, kind: Thing}\n  versions:\n"
        f"  - name: v1\n    served: true\n    storage: true\n{textwrap.indent(version, '    ')}"
    )


SCHEMA = "schema:\n  openAPIV3Schema:\n    type: object\n"
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec:
  accessModes: [x]
  resources:
    requests:
      storage: 1Gb
"""
PROPERTIES = "spec.versions[0].schema.openAPIV3Schema.properties"

CASES = {
    "schema of the only version of a CRD": (
        crd(SCHEMA + "    properties:\n      size: {type: array}\n"),
        [
            "16: error: spec.versions[0].schema.openAPIV3Schema.properties[size].items: Required value"
        ],
    ),
    "subresources and columns of the only version of a CRD": (
        crd(
            SCHEMA
            + "subresources:\n  scale:\n    specReplicasPath: x\n    statusReplicasPath: .status.x\n"
            "additionalPrinterColumns:\n- {name: a, type: string, jsonPath: x}\n"
        ),
        [
            "17: error: spec.versions[0].subresources.scale.specReplicasPath: Invalid value",
            "20: error: spec.versions[0].additionalPrinterColumns[0].JSONPath: Invalid value",
        ],
    ),
    "name of the only version of a CRD": (
        crd(SCHEMA).replace("name: v1\n", "name: v.1\n"),
        ["9: error: spec.versions[0].name: Invalid value"],
    ),
    "top-level schema of a CRD, which is no field of v1": (
        crd(SCHEMA) + "  validation: {}\n",
        ["15: error: spec.validation: unknown field"],
    ),
    "valid": (deployment("replicas: 2") + "---\n" + pod(namespace="elsewhere"), []),
    "wrong type": (
        deployment('replicas: "2"'),
        ["5: error: spec.replicas: json: cannot unmarshal string"],
    ),
    "all problems at once": (
        pod("hostNetwork: x\n  replica: 2\n  initContainers: [{name: d, args: [1, a, {}]}]"),
        [
            "6: error: spec.hostNetwork: json: cannot unmarshal string",
            "7: error: spec.replica: unknown field",
            "8: error: spec.initContainers[0].args[0]: json: cannot unmarshal number",
            "8: error: spec.initContainers[0].args[2]: json: cannot unmarshal object",
            "8: error: spec.initContainers[0].image: Required value",
        ],
    ),
    "wrong type of a required field": (
        pod(name="p", labels="x")
        + "---\n{apiVersion: v1, kind: Pod, metadata: {name: q}, spec: 1}",
        [
            "3: error: metadata.labels: json: cannot unmarshal string",
            "8: error: spec: json: cannot unmarshal number",
        ],
    ),
    "wrong type of a key with dots": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a.b/c: 1, d: 2}}}",
        [
            "1: error: metadata.labels.a.b/c: json: cannot unmarshal number",
            "1: error: metadata.labels.d: json: cannot unmarshal number",
        ],
    ),
    "values that cannot be parsed": (
        pod(
            "hostNetwork: x\n  initContainers:\n  - name: d\n    resources:\n"
            "      limits: {memory: 1Gb, cpu: [1], example.com/gpu: 1}\n"
            "      requests: {cpu: 1x}\n"
            "    livenessProbe: {periodSeconds: 5s}\n"
        )
        + "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  creationTimestamp: today\n"
        "data:\n  tls.crt: YQ==\n  tls.key: abc!\n  a: '-'\nimmutable: 1\n",
        [
            "6: error: spec.hostNetwork: json: cannot unmarshal string",
            "10: error: spec.initContainers[0].resources.limits.memory: quantities must match",
            "10: error: spec.initContainers[0].resources.limits.cpu: quantities must match",
            "11: error: spec.initContainers[0].resources.requests.cpu: quantities must match",
            "12: error: spec.initContainers[0].livenessProbe.periodSeconds: json: cannot unmarshal",
            "8: error: spec.initContainers[0].image: Required value",
            "19: error: metadata.creationTimestamp: parsing time",
            "22: error: data.tls.key: illegal base64 data at input byte 3",
            "23: error: data.a: illegal base64 data at input byte 0",
            "24: error: immutable: json: cannot unmarshal number",
        ],
    ),
    "quantity of a claim that cannot be parsed": (
        CLAIM,
        [
            "5: error: spec.accessModes: Unsupported value",
            "8: error: spec.resources.requests.storage: quantities must match",
        ],
    ),
    "values of a CRD that cannot be parsed": (
        crd(
            SCHEMA + "    properties:\n      a: {additionalProperties: x}\n"
            "      b: {type: 1}\n      c: {type: array, items: [{type: 2}]}\n"
        ),
        [
            f"16: error: {PROPERTIES}.a.additionalProperties: boolean or JSON schema expected",
            f"17: error: {PROPERTIES}.b.type: json: cannot unmarshal number",
            f"18: error: {PROPERTIES}.c.items[0].type: json: cannot unmarshal number",
        ],
    ),
    "metadata of a custom resource that cannot be decoded": (
        "apiVersion: acme.io/v1\nkind: Thing\nmetadata:\n  name: t\n  labels:\n    a: 1\n"
        "  creationTimestamp: today\ntemplate:\n  apiVersion: 1\n  kind: A\n"
        "  metadata:\n    labels: x\nsize: a\n---\n"
        + crd(
            SCHEMA + "    properties:\n      size: {type: integer}\n"
            "      template: {type: object, x-kubernetes-embedded-resource: true,\n"
            "        x-kubernetes-preserve-unknown-fields: true}\n"
        ),
        [
            "6: error: metadata.labels.a: json: cannot unmarshal number",
            "7: error: metadata.creationTimestamp: parsing time",
            "9: error: template.apiVersion: Invalid value: 1: must be a string",
            "12: error: template.metadata.labels: template.metadata: Invalid value",
            "13: error: size: Invalid value",
        ],
    ),
    "unknown field": (deployment("replica: 2"), ["5: error: spec.replica: unknown field"]),
    "unknown field and validation": (
        deployment("replica: 2", labels="{a: c}"),
        [
            "5: error: spec.replica: unknown field",
            '8: error: spec.template.metadata.labels: Invalid value: {"a":"c"}',
        ],
    ),
    "name": (pod(name="A_B"), ['3: error: metadata.name: Invalid value: "A_B"']),
    "no name": (
        "{apiVersion: v1, kind: ConfigMap}",
        ["1: error: metadata.name: Required value: name or generateName"],
    ),
    "no name, but a prefix": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a-}}",
        [],
    ),
    "bad namespace": (
        pod(namespace="A_B"),
        ['3: error: metadata.namespace: Invalid value: "A_B": a lowercase RFC 1123 label'],
    ),
    "other problems besides a bad namespace": (
        pod("hostNetwork: 1", namespace="A_B"),
        [
            "3: error: metadata.namespace: Invalid value",
            "6: error: spec.hostNetwork: json: cannot unmarshal number",
        ],
    ),
    "item of a List": (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, date: {}}",
        ["4: error: items[0].date: unknown field"],
    ),
    "same object twice": (
        NAMESPACE + "\n---\n" + pod() + "---\n" + NAMESPACE + "\n---\n" + pod(),
        [
            "10: warning: metadata.name: Namespace ns is also on line 2; the last one replaces the others",
            "14: warning: metadata.name: Pod p is also on line 6; the last one replaces the others",
        ],
    ),
    "pods need no other objects": (
        pod("priorityClassName: p\n  runtimeClassName: r\n  serviceAccountName: s"),
        [],
    ),
    "any service network": (
        "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 172.30.0.9, ports: [{port: 1}]}}",
        [],
    ),
    "pod security of a namespace that comes later": (
        pod("hostNetwork: true", namespace="ns") + "---\n" + NAMESPACE,
        ['1: error: pods "p" is forbidden: violates PodSecurity "baseline:latest"'],
    ),
    "deprecated": (
        "{apiVersion: v1, kind: Endpoints, metadata: {name: e}}",
        ["1: warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"],
    ),
    "removed": (
        "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: b}",
        [
            (
                "1: error: apiVersion: policy/v1beta1 PodDisruptionBudget is not served "
                "since Kubernetes 1.25; use policy/v1"
            )
        ],
    ),
    "off by default": (
        "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingAdmissionPolicy\nmetadata: {name: b}",
        ["is not served by default; use admissionregistration.k8s.io/v1 MutatingAdmissionPolicy"],
    ),
    "unknown kind of a built-in group": (
        "{apiVersion: apps/v1, kind: Deploymnt}",
        ["1: error: kind: apps/v1 has no kind Deploymnt"],
    ),
    "kind of another built-in group": (
        "{apiVersion: v1, kind: Deployment}",
        ["1: error: kind: v1 has no kind Deployment; use apps/v1 Deployment"],
    ),
    "kind in lower case": (
        "{apiVersion: v1, kind: event}",
        ["1: error: kind: v1 has no kind event; use v1 Event or events.k8s.io/v1 Event"],
    ),
    "custom resource without a CRD": (
        "{apiVersion: example.com/v1, kind: Toy, metadata: {name: t}}",
        ["1: warning: no CRD for example.com/v1 Toy: not checked"],
    ),
    "custom resource of a version without a CRD": (
        "{apiVersion: example.com/v2, kind: Toy, metadata: {name: t}}\n---\n" + CRD,
        ["1: error: kind: no CRD serves example.com/v2 Toy; use example.com/v1 Toy"],
    ),
    "custom resource in lower case": (
        "{apiVersion: example.com/v1, kind: toy, metadata: {name: t}}\n---\n" + CRD,
        ["1: error: kind: no CRD serves example.com/v1 toy; use example.com/v1 Toy"],
    ),
    "custom resource": (
        "{apiVersion: example.com/v1, kind: Toy, metadata: {name: t},\nspec: {size: 9, colour: red}}\n---\n"
        + CRD,
        [
            "1: warning: example.com/v1 Toy is deprecated",
            "2: error: spec.colour: unknown field",
            "2: error: spec: Invalid value: too large",
        ],
    ),
    "invalid CRD": (
        CRD.replace('"type": "integer", "default": 1', '"type": "int"'),
        [
            'versions[0].schema.openAPIV3Schema.properties[spec].properties[size].type: Unsupported value: "int"'
        ],
    ),
    "admission policy with parameters": (
        deployment("replicas: 5") + "---" + POLICY,
        ["too many"],
    ),
    "review": ("{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {}}", []),
}


def problems(text: str, *, version: str = "", strict: bool = False) -> list[str]:
    # the separator makes it YAML
    source = read_source("f", b"---\n" + text.lstrip("\n").encode())
    assert not source.problems
    findings = asyncio.run(
        check_manifests(source.manifests, version=parse_version(version), strict=strict)
    )
    return sorted(
        f"{each.line - 1}: {each.level}: " + (f"{each.path}: " if each.path else "") + each.message
        for each in findings
    )


@pytest.mark.parametrize("name", CASES)
def test_problems_of_objects(name: str) -> None:
    text, expected = CASES[name]
    found = problems(text)
    assert len(found) == len(expected), found
    for shown, wanted in zip(found, sorted(expected), strict=True):
        assert wanted in shown


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (
            "apiextensions.k8s.io/v1beta1 CustomResourceDefinition",
            "1.22; use apiextensions.k8s.io/v1 ",
        ),
        ("apiregistration.k8s.io/v1beta1 APIService", "1.22; use apiregistration.k8s.io/v1 "),
        ("batch/v2alpha1 CronJob", "1.21; use batch/v1 "),
        ("policy/v1beta1 PodSecurityPolicy", "1.25"),
        ("settings.k8s.io/v1alpha1 PodPreset", "1.20"),
        ("rbac.authorization.k8s.io/v1alpha1 Role", "1.22; use rbac.authorization.k8s.io/v1 "),
        ("resource.k8s.io/v1alpha2 ResourceClass", "1.31; use resource.k8s.io/v1 DeviceClass"),
    ],
)
def test_removed_api_version_is_no_unknown_kind(kind: str, advice: str) -> None:
    api_version, _, name = kind.partition(" ")
    (found,) = problems(f"{{apiVersion: {api_version}, kind: {name}, metadata: {{name: a}}}}")
    assert f"{kind} is not served since Kubernetes {advice}" in found


def test_missing_field_of_a_custom_resource_is_one_problem() -> None:
    crd = CRD.replace('"properties": {"size"', '"required": ["size"], "properties": {"size"')
    crd = crd.replace(', "default": 1', "")
    toy = "{apiVersion: example.com/v1, kind: Toy, metadata: {name: t}, spec: {}}"
    errors = [each for each in problems(f"{crd}\n---\n{toy}") if "error" in each]
    assert len(errors) == 1, errors
    assert "spec.size: Required value" in errors[0]


@pytest.mark.parametrize(
    ("text", "results"),
    [
        (
            pod("schedulingGroup: {podGroupName: a}"),
            {"1.34": "unknown field", "1.35": "unknown field", "1.36": ""},
        ),
        (
            POLICY.replace("Validating", "Mutating").partition("---")[2].partition("---")[0],
            {
                "1.34": "is not served by Kubernetes 1.34, but by 1.36",
                "1.36": "spec.validationActions: unknown field",
            },
        ),
        (
            "{apiVersion: resource.k8s.io/v1beta2, kind: DeviceTaintRule, metadata: {name: a}}",
            {"1.34": "is not served before Kubernetes 1.36", "1.36": "is not served by default"},
        ),
    ],
)
def test_problems_depend_on_the_version(text: str, results: dict[str, str]) -> None:
    for version, expected in results.items():
        found = problems(text, version=version)
        assert (expected in " ".join(found)) if expected else not found


def test_custom_resource_without_a_crd_is_an_error_if_strict() -> None:
    text = CASES["custom resource without a CRD"][0]
    assert problems(text, strict=True) == ["1: error: no CRD for example.com/v1 Toy: not checked"]


BAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndate: {}\n"


def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(command, ["validate", *arguments], input=stdin)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a valid file, an invalid one, and one without objects; the working directory."""
    (tmp_path / "a.yaml").write_text(f"---\n{NAMESPACE}")
    (tmp_path / "b,c.yaml").write_text(BAD)
    (tmp_path / "values.yaml").write_text("a: 1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_text(folder: Path) -> None:
    code, out, err = run(".")
    assert (code, out) == (1, "b,c.yaml:4: date: unknown field\n")
    assert (
        err
        == "skipped values.yaml: no Kubernetes object\n2 objects in 2 files: 1 error, 0 warnings\n"
    )
    assert run("-q", "a.yaml") == (0, "", "")


def test_standard_input(folder: Path) -> None:
    assert run("-", "-q", stdin=BAD) == (1, "<stdin>:4: date: unknown field\n", "")


def test_json(folder: Path) -> None:
    code, out, _ = run("-o", "json", ".")
    document = json.loads(out)
    assert (code, document["files"], document["objects"]) == (1, 2, 2)
    assert document["skipped"] == [{"file": "values.yaml", "reason": "no Kubernetes object"}]
    assert document["problems"] == [
        {
            "file": "b,c.yaml",
            "line": 4,
            "level": "error",
            "path": "date",
            "message": "unknown field",
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": "",
            "name": "a",
        }
    ]


def test_annotations_of_github(folder: Path) -> None:
    assert (
        run("-o", "github", "b,c.yaml")[1]
        == "::error file=b%2Cc.yaml,line=4,title=ConfigMap a::date: unknown field\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.yaml"], "missing.yaml: No such file or directory"),
        (["--kubernetes-version", "1.20", "a.yaml"], "'1.20' is not supported"),
        (["--crds", "bad.json", "a.yaml"], "--crds: CustomResourceDefinition"),
        ([], "Missing argument"),
    ],
)
def test_exit_code_if_a_check_is_not_possible(
    folder: Path, arguments: list[str], message: str
) -> None:
    (folder / "bad.json").write_text(CRD.replace('"type": "integer"', '"type": "int"'))
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_fields_of_a_beta_crd_have_moved(folder: Path) -> None:
    (folder / "crd.yaml").write_text(
        "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: toys.example.com},"
        "\n spec: {group: example.com, version: v1, scope: Namespaced, names: {plural: toys, kind: Toy},"
        " subresources: {}, additionalPrinterColumns: [], validation: {}}}"
    )
    moved = {
        "version": "name",
        "validation": "schema",
        "subresources": "subresources",
        "additionalPrinterColumns": "additionalPrinterColumns",
    }
    _, out, _ = run("crd.yaml")
    code, _, err = run("--crds", "crd.yaml", "a.yaml")
    assert code == 2
    for old, new in moved.items():
        message = f"spec.{old}: unknown field: moved to spec.versions[].{new} in v1"
        assert message in out
        assert message in err


def test_crds_of_an_option(folder: Path) -> None:
    (folder / "crd.json").write_text(CRD)
    (folder / "toy.yaml").write_text(
        "---\n{apiVersion: example.com/v1, kind: Toy, metadata: {name: t}, spec: {size: x}}"
    )
    code, out, _ = run("--crds", "crd.json", "toy.yaml")
    assert (code, "toy.yaml:2: spec.size: Invalid value" in out) == (1, True)


def test_object_that_is_twice_in_a_file_is_a_warning() -> None:
    texts = [
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        for name, namespace in (("a", "one"), ("a", "two"), ("b", "one"), ("a", "one"))
    ]
    source = read_source("a.yaml", "---\n".join(texts).encode())
    other = read_source("b.yaml", texts[0].encode())
    manifests = [*source.manifests, *other.manifests]
    (finding,) = asyncio.run(check_manifests(manifests))
    assert (finding.file, finding.line, finding.level) == ("a.yaml", 15, "warning")
    assert finding.message == "ConfigMap a is also on line 3; the last one replaces the others"
