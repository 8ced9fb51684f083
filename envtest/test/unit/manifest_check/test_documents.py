"""The objects in manifest files, and the lines of their fields."""

from __future__ import annotations

import pytest

from envtest.formats.json_stream import split_values
from envtest.manifest_check.documents import Document, read_source

TEXT = b"""# comment
apiVersion: v1
kind: Pod
metadata:
  labels:
    app.kubernetes.io/name: x
    a: b
spec:
  containers:
  - name: a
    ports: [{containerPort: 1},
            {containerPort: 2}]
  - name: b
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 2),
        ("kind", 3),
        ("metadata.labels", 5),
        ("metadata.labels.app.kubernetes.io/name", 6),
        ("metadata.labels[a]", 7),
        ("spec.containers[0].name", 10),
        ("spec.containers[0].ports[1].containerPort", 12),
        ("spec.containers[1]", 13),
        ("spec.containers[1].image", 13),
        ("spec.containers[7].image", 9),
        ("spec.nodeName", 8),
        ("status", 2),
        ("...[[]", 2),
    ],
)
def test_line_of_a_field_or_of_its_closest_parent(path: str, line: int) -> None:
    assert Document("f", 1, TEXT).locate(path) == line
    assert Document("f", 11, TEXT).locate(path) == line + 10


def test_line_of_a_field_of_json() -> None:
    text = '{"a": {"b":\n1}}\n{"a":\n{"b": [1,\n2]}}\n'
    documents = [
        Document("f", line, value, json=True) for line, value in split_values(text.encode())
    ]
    assert [each.locate("a.b") for each in documents] == [1, 4]
    assert documents[1].locate("a.b[1]") == 5


def test_line_of_json_that_is_not_yaml() -> None:
    document = Document("f", 3, b'{\n"a": "\\ud83d\\ude00"}', json=True)
    assert document.locate("a") == 3


@pytest.mark.parametrize(
    ("text", "objects", "problems", "others"),
    [
        ("", [], [], 0),
        ("---\n---\n# nothing\n", [], [], 0),
        ("a: 1\n---\n- x\n---\ntext\n", [], [], 3),
        ("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n", ["A", "B"], [], 0),
        (
            "- a\n---\napiVersion: v1\nkind: A\n---\ntext\n---\nb: 1\n",
            ["A"],
            [
                (1, "a list is not a Kubernetes object"),
                (6, "text is not a Kubernetes object"),
                (8, "apiVersion and kind are missing"),
            ],
            3,
        ),
        ('{"apiVersion": "v1",\n"kind": "A"}', ["A"], [], 0),
        (
            '\n {"apiVersion": "v1",\n"kind": "A",\n\t"a": "\\ud83d\\ude00"}\n\n{"apiVersion": "v1", "kind": "B"} ',
            ["A", "B"],
            [],
            0,
        ),
        (
            '{"apiVersion": "v1",\n"kind": "A", "b": {"c": 1,\n"c": 2}}\n---\n{apiVersion: v1, kind: B}\n---\n[',
            ["A", "B"],
            [(3, 'key "c" already set in map'), (8, "expected")],
            0,
        ),
        (
            '{"apiVersion": "v1", "kind": "A"}\n{"apiVersion": "v1",\n"kind": "B",\n}\n{}',
            ["A"],
            [(4, "json: invalid character '}' looking for beginning of object key string")],
            0,
        ),
        (
            "{'apiVersion': 'v1', 'kind': 'A'}",
            [],
            [(1, "json: invalid character")],
            0,
        ),
        (
            "{apiVersion: v1, kind: A}",
            [],
            [(1, "json: invalid character 'a' looking for beginning of object key string")],
            0,
        ),
        (
            '{"apiVersion": "v1",\n// comment\n"kind": "A"}',
            [],
            [(2, "json: invalid character '/' looking for beginning of object key string")],
            0,
        ),
        (
            '{"apiVersion": "v1", "kind": "A"}\n# comment',
            ["A"],
            [(2, "json: invalid character '#' looking for beginning of value")],
            0,
        ),
        ('{"kind": "A"', [], [(1, "json: unexpected end of JSON input")], 0),
        ('{"kind": NaN}', [], [(1, "json: invalid")], 0),
        ('{"a": ' * 2000, [], [(1, "json: ")], 0),
        ('{"a": ' + "1" * 5000 + "}", [], [(1, "cannot unmarshal number into Go value")], 0),
        ("---\n{apiVersion: v1, kind: A}", ["A"], [], 0),
        ("# comment\n{apiVersion: v1, kind: A}", ["A"], [], 0),
        ("apiVersion: v1\n", [], [(1, "kind is missing")], 0),
        ("a: 1\nkind: A\n", [], [(1, "apiVersion is missing")], 0),
        ("apiVersion: v1\nkind: 1\n", [], [(2, "kind is missing")], 0),
        (
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- {kind: B}\n",
            ["A"],
            [(5, "apiVersion is missing")],
            0,
        ),
        ("apiVersion: v1\nkind: ConfigMapList\nitems: [{a: 1}]\n", ["ConfigMap"], [], 0),
        ("apiVersion: v1\nkind: List\nitems: []\n", [], [], 0),
        (
            "apiVersion: v1\nkind: A\n---\na: [\n---\napiVersion: v1\nkind: B\n",
            ["A", "B"],
            [(5, "expected node content")],
            0,
        ),
        (
            "apiVersion: v1\nkind: A\nb: {c: 1,\n    c: 2}\n",
            ["A"],
            [(4, 'key "c" already set in map')],
            0,
        ),
        ("apiVersion: v1\nkind: A\nb: *c\n", [], [(3, "unknown anchor 'c' referenced")], 0),
        (
            "apiVersion: v1\nkind: A\nb: " + "[" * 300 + "]" * 300,
            [],
            [(1, "cannot be expressed as JSON")],
            0,
        ),
    ],
)
def test_objects_of_a_file(
    text: str, objects: list[str], problems: list[tuple[int, str]], others: int
) -> None:
    source = read_source("f", text.encode())
    assert [each.obj["kind"] for each in source.manifests] == objects
    assert [each.line for each in source.problems] == [line for line, _ in problems]
    assert all(
        text in each.message for each, (_, text) in zip(source.problems, problems, strict=True)
    )
    assert source.others == others


@pytest.mark.parametrize(
    "text",
    [
        b"apiVersion: v1\nkind: {{ .Values.kind }}\nmetadata: {name: {{ .Release.Name }}}\n",
        b"{{- if .Values.enabled }}\napiVersion: v1\nkind: ConfigMap\n{{- end }}\n",
    ],
)
def test_template_of_helm_is_recognized(text: bytes) -> None:
    (problem,) = read_source("a.yaml", text).problems
    hint = (
        "if this is a template of Helm, check its result: helm template FOLDER | envtest validate -"
    )
    assert problem.message.endswith(f"; {hint}")
    (problem,) = read_source("a.yaml", b"a: [").problems
    assert "helm" not in problem.message
