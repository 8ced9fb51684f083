"""``cfo plan`` on the command line: its inputs, outputs, errors and exit codes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cfo.cli import cli
from cfo.console.plan.documents import InvalidDocument, read_documents
from cfo.console.plan.plan_command import _masked
from test.support.inference_stacks import stack


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments], input=stdin, prog_name="cfo")


def manifest(**spec: Any) -> str:
    return yaml.safe_dump(
        {
            **stack({"a": {"readerConfig": {"modelName": "m"}}}, **spec),
            "status": {"profile": "v2.9"},
        }
    )


def test_change_of_the_label_is_planned_from_standard_input() -> None:
    result = run("-", "--operator-version", "v3", "--exit-code", stdin=manifest())
    assert result.exit_code == 0, result.output
    assert "InferenceStack ns/s: operatorVersion v2 -> v3, profile v2.9\n" in result.stdout
    assert "6 rendered objects unchanged, 0 pods restarted" in result.stdout


def test_edit_is_compared_with_the_current_stacks(tmp_path: Path) -> None:
    current, edited = tmp_path / "current.json", tmp_path / "edited.yaml"
    current.write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [yaml.safe_load(manifest())]})
    )
    edited.write_text(manifest(gateway={"replicaCount": 2}) + "---\n")
    result = run(str(edited), "--current", str(current), "--exit-code")
    assert result.exit_code == 3
    assert "change  Deployment s-inference-stack-gateway (restarts 1 pod)" in result.stdout
    assert "-  replicas: 1\n+  replicas: 2\n" in result.stdout
    short = run(str(edited), "--current", str(current), "--output", "summary")
    assert (short.exit_code, "replicas:" in short.stdout) == (0, False)


def test_stack_that_does_not_exist_yet_is_created(tmp_path: Path) -> None:
    current = tmp_path / "current.yaml"
    current.write_text("")
    result = run("-", "--current", str(current), stdin=manifest())
    assert "create  Deployment s-inference-stack-a" in result.stdout
    assert "--- /dev/null" in result.stdout


def test_objects_can_be_applied() -> None:
    result = run("-", "-o", "objects", stdin=manifest())
    assert [obj["kind"] for obj in yaml.safe_load_all(result.stdout)][:2] == [
        "ServiceAccount",
        "ConfigMap",
    ]


def test_warnings_are_on_standard_error() -> None:
    text = yaml.safe_dump(stack({"a": {"readerConfig": {"modelName": "m", "device": "cuda"}}}))
    result = run("-", "-o", "objects", stdin=text)
    assert "no GPU, but readerConfig.device is cuda" in result.stderr
    assert "no GPU" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["-"], "", "<stdin>: no InferenceStack found"),
        (["-"], "a: [", "<stdin>: not valid YAML"),
        (["-"], "- 1", "<stdin>: must contain Kubernetes objects, not list"),
        (["-"], "kind: X", "X: metadata.name is missing"),
        (["-"], f'kind: "X\\n\\t{"y" * 20_000}"', "X y"),
        (["-"], "metadata: {name: s}", "s: apiVersion is missing"),
        (
            ["-"],
            "{apiVersion: v1, kind: X, metadata: {name: s, labels: [1]}}",
            "metadata.labels: must be an object",
        ),
        (["-"], manifest() + "---\n" + manifest(), "InferenceStack ns/s is duplicated"),
        (["-"], manifest(securityProfil="x"), "InferenceStack ns/s: spec.securityProfil"),
        (
            ["-", "--operator-version", "2"],
            manifest(),
            "--operator-version: '2': must be v followed by a number",
        ),
    ],
)
def test_invalid_input_is_one_line(arguments: list[str], stdin: str, message: str) -> None:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 11_000


def test_large_file_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfo.console.plan.documents.MAX_BYTES", 1 << 20)
    with pytest.raises(InvalidDocument, match="larger than 1 MiB"):
        read_documents([("f", b" " * ((1 << 20) + 1))], "default")


STACK = (
    "apiVersion: doublewordai.co/v1alpha1\nkind: InferenceStack\nmetadata: "
    "{name: s, labels: {operatorVersion: v2}}\n"
)
DEPLOYMENT = (
    "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: s-inference-stack-gateway}\n"
)
EXPANDING = "".join(
    f"  {name}: &{name} [{', '.join([value] * 99)}]\n"
    for name, value in zip("abcd", ("x", "*a", "*b", "*c"), strict=True)
)


def with_metadata(fields: str) -> str:
    return f"{STACK}spec: {{}}\n{DEPLOYMENT.replace('gateway}', f'gateway, {fields}}}')}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{STACK}spec: {'[' * 100_000}{']' * 100_000}", "at most 100 levels"),
        (f"{STACK}spec: {'{a: ' * 200}1{'}' * 200}", "at most 100 levels"),
        (f"{STACK}spec: !!bool x", "not valid YAML"),
        (f"{STACK}spec: &a {{gateway: *a}}", "at most 100 levels"),
        (f"{STACK}spec:\n{EXPANDING}", "at most 200000 values"),
        (f"{STACK}spec: {{}}\n{DEPLOYMENT}spec:\n{EXPANDING}", "at most 200000 values"),
        (f"{STACK}spec: {{1: x}}", "keys must be strings"),
        (f"{STACK}spec: {{null: x}}", "keys must be strings"),
        (f"{STACK}spec: {{a: !!binary aGVsbG8=}}", "not bytes"),
        (f"{STACK}spec: {{a: {'9' * 5000}}}", "not valid YAML"),
        (STACK.replace("name: s,", 'name: "\\e[2J",'), "not a valid name"),
        (
            f"{STACK}spec: {{}}\n{DEPLOYMENT}spec: {{template: {{metadata: {{labels: [a]}}}}}}",
            "must be an object",
        ),
        (f"{STACK}spec: {{}}\n{DEPLOYMENT}spec: {{replicas: x}}", "must be an integer"),
        (
            with_metadata("ownerReferences: [1]"),
            r"metadata.ownerReferences\[0\]: must be an object",
        ),
        (
            with_metadata("managedFields: [{fieldsV1: {f:spec: 5}}]"),
            "metadata.managedFields: fieldsV1 must contain",
        ),
        (
            with_metadata("managedFields: [{fieldsV1: 5}]"),
            r"managedFields\[0\].fieldsV1: must be an object",
        ),
        (with_metadata("labels: {inference-stack-operator/kept-replicas: 5}"), "must be a string"),
        (STACK.replace("name: s,", 'name: "",'), "metadata.name is missing"),
    ],
)
def test_hostile_file_is_rejected(content: str, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message):
        read_documents([("file", content.encode())], "default")


def test_dates_are_strings() -> None:
    content = f"{STACK}spec: {{applications: {{a: {{readerConfig: {{modelName: 2001-01-01}}}}}}}}"
    found = read_documents([("file", content.encode())], "default")
    (obj,) = found.stacks.values()
    assert obj["spec"]["applications"]["a"]["readerConfig"]["modelName"] == "2001-01-01"


def test_invalid_stack_does_not_hide_the_others() -> None:
    invalid = yaml.safe_load(manifest())
    invalid["metadata"] |= {
        "name": "bad",
        "namespace": "tenant",
        "labels": {"operatorVersion": "v99"},
    }
    invalid["spec"] = {"applications": {"a\x1b[2J\u202e\n": {"replicaCount": "x"}}, "gateway": []}
    result = run("-", stdin=f"{yaml.safe_dump(invalid)}---\n{manifest()}")
    assert result.exit_code == 2
    assert "InferenceStack ns/s: operatorVersion v2" in result.stdout
    assert "Error: InferenceStack tenant/bad: " in result.stderr
    assert all(line.isprintable() for line in result.output.split("\n"))


def test_tokens_are_masked_in_linear_time() -> None:
    began = time.thread_time()
    assert _masked("\n" * 60_000, "  access_token: abc\n") == (
        "\n" * 60_000,
        "  access_token: *** (after)\n",
    )
    assert time.thread_time() - began < 2
