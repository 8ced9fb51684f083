"""Static types of expressions in admission."""

from __future__ import annotations

import pytest

from envtest.schema.cel import CELCompileError
from envtest.schema.cel_admission import check_expression


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("object.spec.replicas", "dyn"),
        ("request.operation", "string"),
        ("request.namespace == '' && has(request.subResource)", "bool"),
        ("request.userInfo.groups", "list(string)"),
        ("request.options.dryRun", "dyn"),
        ("request.kind == request.requestKind", "bool"),
        ("request.resource == request.requestResource", "bool"),
        ("namespaceObject.metadata.labels['a']", "string"),
        ("namespaceObject == null || oldObject == null", "bool"),
        ("authorizer.group('').resource('pods').check('get').allowed()", "bool"),
        (
            "authorizer.group('').resource('pods').labelSelector('a=b').fieldSelector('c=d').check('get').allowed()",
            "bool",
        ),
        ("params.x", "dyn"),
        ("variables.size + 1", "int"),
        ("variables.name.startsWith('a')", "bool"),
        ("[request.name, 'a', variables.name]", "list(string)"),
        ("variables.names", "list(string)"),
        ("variables.counts['a'] + 1", "int"),
        ("{'a': string(object.x), 'b': request.name}", "map(string, string)"),
        ("'%s %d'.format(['a', 1])", "string"),
        ("null", "null_type"),
        ("object.x ? Object{} : Object{}", "Object"),
        ("Object.spec{}", "Object.spec"),
        ("object.l.map(i, JSONPatch{op: 'add', path: i, value: 1})", "list(JSONPatch)"),
        ("object.x ? [JSONPatch{}] : []", "list(JSONPatch)"),
        ("[]", "list(dyn)"),
    ],
)
def test_type_of_expression(expression: str, kind: str) -> None:
    variables = {
        "size": "int",
        "name": "string",
        "counts": "map(string, int)",
        "names": "list(string)",
    }
    assert check_expression(expression, params=True, variables=variables, patches=True) == kind


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("request.verb", "1:8: undefined field 'verb'"),
        ("object.`a-b` == 'x' && 1 == 'a'", "1:8: unsupported syntax: '`'\n | object.`a-b`"),
        ("'`' == '`' &&\n has(object.?`a`.`b`)", "2:14: unsupported syntax: '`'"),
        ("request.operation == 1", "no matching overload for '_==_'"),
        ("namespaceObject.metadata.uid", "undefined field 'uid'"),
        ("variables.other", "undefined field 'other'"),
        ("params.x", "undeclared reference to 'params"),
        ("{'a': 'b', 'c': object.x}", "1:23: expected type 'string' but found 'dyn'"),
        ("['a',\n object.x]", "2:8: expected type 'string' but found 'dyn'"),
        ("{'a': 1, 2: 1}", "expected type 'string' but found 'int'"),
        (
            "Object{metadata: Object.metadata{labels: {'a': 'b', 'c': object.x}}}",
            "1:64: expected type 'string'",
        ),
        ("object.x.matches('[')", "invalid matches argument"),
        ("JSONPatch{op: 1}", "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("JSONPatch{operation: 'add'}", "undefined field 'operation'"),
        ("Other{}", "undeclared reference to 'Other'"),
        ("Object{spec: Object.spec{a: b}}", "1:29: undeclared reference to 'b'"),
        ("1 " * 50_001, "expression code point size exceeds limit: size: 100002, limit 100000"),
    ],
)
def test_compile_error(expression: str, error: str) -> None:
    with pytest.raises(CELCompileError) as raised:
        check_expression(expression, variables={}, patches=True)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    "expression",
    ["Object{}", "jsonpatch.escapeKey('a')", "authorizer.path('/').check('get').allowed()"],
)
def test_types_and_variables_are_limited_to_their_expressions(expression: str) -> None:
    with pytest.raises(CELCompileError, match="undeclared reference"):
        check_expression(expression, authorizer=False)


def test_policies_cannot_bind_variables() -> None:
    with pytest.raises(CELCompileError) as error:
        check_expression("cel.bind(x, object, x != null)")
    # Recorded: an error for each unknown name, by position.
    assert str(error.value) == (
        "ERROR: <input>:1:1: undeclared reference to 'cel' (in container '')\n"
        " | cel.bind(x, object, x != null)\n"
        " | ^\n"
        "ERROR: <input>:1:9: undeclared reference to 'bind' (in container '')\n"
        " | cel.bind(x, object, x != null)\n"
        " | ........^\n"
        "ERROR: <input>:1:10: undeclared reference to 'x' (in container '')\n"
        " | cel.bind(x, object, x != null)\n"
        " | .........^\n"
        "ERROR: <input>:1:21: undeclared reference to 'x' (in container '')\n"
        " | cel.bind(x, object, x != null)\n"
        " | ....................^"
    )
