"""Diffs, patches, filters, declarations and settings."""

from __future__ import annotations

import asyncio
import datetime
import functools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

import cfo_handlers as kopf
from cfo.runtime import Conflict, TransportError
from cfo.runtime.client import TooManyRequests, WriteRejected
from cfo.runtime.objects import merged
from cfo.runtime.webhook import AdmissionRequest
from cfo_handlers.admission import patch_operations, register_webhooks
from cfo_handlers.causes import Cause, detect_change
from cfo_handlers.command import command
from cfo_handlers.declarations import ChangingHandler, TimerHandler
from cfo_handlers.diffs import compute_diff, reduce_diff, remove, resolve
from cfo_handlers.environment import Environment, Index
from cfo_handlers.execution import call_handler
from cfo_handlers.patching import apply_patch, make_plain, plain
from cfo_handlers.progress import HandlerState
from cfo_handlers.resource_selectors import Resource
from cfo_handlers.signatures import require_signatures
from cfo_handlers.storage import MAX_STORED

OLD = datetime.datetime(2020, 1, 1)  # noqa: DTZ001 - kopf allows times without a time zone


def test_diff_of_many_fields_is_reported_for_the_fields_above_them() -> None:
    old = {"spec": {str(number): number for number in range(2000)}, "same": 1}
    new = {"spec": {str(number): -number - 1 for number in range(2000)}, "same": 1}
    (item,) = compute_diff(old, new)
    assert (item.op, item.field) == ("change", ("spec",))
    assert len(reduce_diff([item], ("spec", "5"))) == 1


def test_diff_of_deep_objects_ends_at_a_depth() -> None:
    old: Any = {}
    new: Any = {"leaf": 1}
    for _ in range(500):
        old, new = {"a": old}, {"a": new}
    (item,) = compute_diff(old, new)
    assert len(item.field) <= 33


def test_reduced_diff_is_relative_to_the_field() -> None:
    diff = compute_diff({"spec": {"a": {"b": 1}}}, {"spec": {"a": {"b": 2}}})
    assert list(reduce_diff(diff, ("spec", "a"))) == [("change", ("b",), 1, 2)]
    added = compute_diff(None, {"spec": {"a": {"b": 2}}})
    assert list(reduce_diff(added, ("spec", "a", "b"))) == [("add", (), None, 2)]


def test_field_of_a_value_that_is_not_an_object_is_absent() -> None:
    obj: dict[str, Any] = {"spec": "text", "status": {"a": {"b": 1}}}
    assert resolve(obj, ("spec", "a"), "absent") == "absent"
    remove(obj, ("spec", "a"))
    remove(obj, ("status", "a", "b"))
    assert obj == {"spec": "text"}


def test_configuration_that_is_too_large_is_stored_as_a_digest() -> None:
    storage = kopf.AnnotationsDiffBaseStorage()
    body: dict[str, Any] = {"metadata": {}, "spec": {"text": "x" * MAX_STORED}}
    essence = storage.build(body=body)
    patch = kopf.Patch()
    storage.store(body=body, patch=patch, essence=essence)
    annotations = patch["metadata"]["annotations"]
    assert sum(map(len, annotations.values())) < 100
    stored = {**body, "metadata": {"annotations": annotations}}
    assert storage.build(body=stored) == essence
    assert storage.fetch(body=stored) is None
    assert storage.is_stored_digest(body=stored, essence=essence) is True
    assert storage.is_stored_digest(body=stored, essence={"spec": {}}) is False

    small = kopf.Patch()
    storage.store(body=stored, patch=small, essence={"spec": {}})
    assert (
        small["metadata"]["annotations"]["kopf.zalando.org/last-handled-configuration-digest"]
        is None
    )


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "1", '{"a": NaN}'])
def test_annotations_that_users_broke_count_as_absent(text: str) -> None:
    body = {
        "metadata": {
            "annotations": {
                "kopf.zalando.org/last-handled-configuration": text,
                "kopf.zalando.org/fn": text,
            }
        }
    }
    assert kopf.AnnotationsDiffBaseStorage().fetch(body=body) is None
    assert kopf.SmartProgressStorage().fetch(key="fn", body=body) is None


@pytest.mark.parametrize(
    "metadata",
    ["5", '"text"', "[1]", '{"annotations": 5}', '{"annotations": [1]}', '{"labels": 5}'],
)
async def test_configuration_in_the_form_of_no_object_counts_as_absent(metadata: str) -> None:
    annotations = {"kopf.zalando.org/last-handled-configuration": f'{{"metadata": {metadata}}}'}
    body = {"metadata": {"annotations": annotations}, "spec": {}}
    change = detect_change(
        Environment(kopf.OperatorRegistry()), body, [("metadata", "labels", "x")], initial=False
    )
    assert (change.reason, change.old) == (kopf.Reason.CREATE, None)


def test_only_as_many_stored_sub_handlers_count_as_fit_into_the_annotations() -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    state = HandlerState.parse({"subrefs": ["fn/a", 5, ["nested"], *map(str, range(40_000))]}, now)
    assert {"fn/a", "0"} < state.children
    assert len(state.children) < 1000


async def test_large_admission_requests_are_compared_outside_of_the_event_loop() -> None:
    registry, webhooks = kopf.OperatorRegistry(), []

    @kopf.on.mutate("websites", registry=registry)
    async def mutate(diff: kopf.Diff, patch: kopf.Patch, **_: Any) -> None:
        assert [item.field for item in diff] == [("spec", "b")]
        patch.spec["c"] = 3

    resource = Resource(
        group="example.com", version="v1", kind="Website", plural="websites", namespaced=True
    )
    collector = SimpleNamespace(add=webhooks.append)
    register_webhooks(Environment(registry), [resource], collector, "a.b")  # type: ignore[arg-type]
    computed: list[Any] = []

    async def run(client: tuple[str, str], weight: int, function: Any, *args: Any) -> Any:
        computed.append((weight, function))
        return function(*args)

    request = AdmissionRequest(
        object={"metadata": {}, "spec": {"a": 1, "b": 2}},
        old_object={"metadata": {}, "spec": {"a": 1}},
        weight=1 << 20,
        worker=SimpleNamespace(run=run),  # type: ignore[arg-type]
    )
    response = await webhooks[0].handler.handle(request)
    assert response.patch == [{"op": "add", "path": "/spec/c", "value": 3}]
    assert computed == [(1 << 20, compute_diff), (1 << 20, patch_operations)]


def test_progress_with_invalid_fields_starts_again() -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    record = {
        "started": "yesterday",
        "delayed": 5,
        "retries": -1,
        "success": "yes",
        "subrefs": "abc",
        "purpose": [],
    }
    assert HandlerState.parse(record, now) == HandlerState(started=now)


def test_patch_is_converted_to_json_or_refused() -> None:
    body = kopf.Body({"metadata": {"labels": {"a": "b"}}, "spec": {"a": 1}})
    patch = kopf.Patch()
    patch.status["spec"] = body.spec
    patch.meta.labels["x"] = "y"
    patch.status["when"] = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    make_plain(patch)
    assert patch == {
        "status": {"spec": {"a": 1}, "when": "2026-01-01T00:00:00+00:00"},
        "metadata": {"labels": {"x": "y"}},
    }
    patch.status["object"] = object()
    with pytest.raises(TypeError, match="object: cannot be stored"):
        make_plain(patch)
    assert not patch

    async def function(_: Any) -> None: ...

    patch.fns.append(function)
    with pytest.raises(
        TypeError, match=r"patch\.fns: .*function.*: must be a function, without async"
    ):
        make_plain(patch)
    with pytest.raises(TypeError, match="delay: '5': must be a number of seconds"):
        kopf.TemporaryError("again", delay="5")  # type: ignore[arg-type]
    assert plain({"a": (1, {2})}) == {"a": [1, [2]]}


def test_json_patch_contains_the_merge_patch_and_the_functions() -> None:
    obj = {"spec": {"a": 1, "b": 2, "items": [1]}, "metadata": {"labels": {"a/b": "c"}}}
    patch = kopf.Patch({"spec": {"a": None, "new": {"x": 1}}, "metadata": {"labels": {"a/b": "d"}}})
    patch.fns.append(lambda body: body["spec"]["items"].append(2))
    operations = patch_operations(obj, patch)
    assert sorted(operations, key=lambda operation: operation["path"]) == [
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "d"},
        {"op": "remove", "path": "/spec/a"},
        {"op": "add", "path": "/spec/items/1", "value": 2},
        {"op": "add", "path": "/spec/new", "value": {"x": 1}},
    ]
    assert obj["spec"] == {"a": 1, "b": 2, "items": [1]}
    assert merged({"a": {"b": 1}}, {"a": {"b": None}, "c": 2}) == {"a": {}, "c": 2}


def test_views_are_read_only_and_follow_the_body() -> None:
    body = kopf.Body({"metadata": {"name": "a"}, "spec": {"x": 1}})
    spec, labels = body.spec, body.metadata.labels
    with pytest.raises(TypeError):
        spec["x"] = 2  # type: ignore[index]
    body.replace({"metadata": {"name": "a", "labels": {"l": "m"}}})
    assert (dict(spec), dict(labels)) == ({}, {"l": "m"})
    assert body.metadata.namespace is None


def test_index_forgets_the_keys_that_an_object_no_longer_has() -> None:
    index: Index[Any, Any] = Index()
    index.put("one", {"a": 1, "b": 1})
    index.put("two", {"a": 2})
    index.put("one", {"a": 3})
    assert {key: sorted(store) for key, store in index.items()} == {"a": [2, 3]}
    index.put("one", None)
    index.put("two", "value")
    assert {key: list(store) for key, store in index.items()} == {None: ["value"]}
    index.put("two", None)
    index.put("two", None)
    assert not index


def test_declarations_get_identifiers_and_reject_contradictions() -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.create("pods", registry=registry)
    @kopf.on.field("pods", field="spec.nodeName", registry=registry)
    @kopf.timer("pods", interval=5, id="tick", registry=registry)
    def fn(**_: Any) -> None: ...

    name = "test_declarations_get_identifiers_and_reject_contradictions.<locals>.fn"
    assert [handler.id for handler in registry] == ["tick", f"{name}/spec.nodeName", name]
    assert [len(registry.of_type(kind)) for kind in (ChangingHandler, TimerHandler)] == [2, 1]
    wrong: list[tuple[Any, dict[str, Any]]] = [
        (kopf.on.update, {"value": 1}),
        (kopf.on.update, {"field": "spec", "value": 1, "old": 2}),
        (kopf.on.create, {"field": "spec", "old": 1}),
        (kopf.on.create, {"unknown": 1}),
        (kopf.on.create, {"kind": "Pod"}),
    ]
    for decorator, settings in wrong:
        with pytest.raises(TypeError):
            decorator("pods", registry=registry, **settings)(fn)
    with pytest.raises(TypeError, match=r"must name a resource, as in on.create\('kopfexamples'\)"):
        kopf.on.create()
    for decorator, settings, message in (
        (
            kopf.on.create,
            {"label": {"a": "b"}},
            r"^on\.create: keyword label: .*; did you mean labels\?",
        ),
        (kopf.on.create, {"retry": 3}, r"^on\.create: keyword retry: .*; did you mean retries\?"),
        (
            kopf.on.create,
            {"reason": 1},
            r"^on\.create: keyword reason: must be one of annotations, ",
        ),
        (kopf.on.create, {"labels": "a=b"}, r"^on\.create: labels: 'a=b': must be a dict"),
        (kopf.on.create, {"retries": 1.5}, r"^on\.create: retries: 1\.5: must be a whole number"),
        (kopf.on.create, {"backoff": -1}, r"^on\.create: backoff: -1: must be a number of seco"),
        (kopf.daemon, {"initial_delay": "5"}, r"^on\.daemon: initial_delay: '5': must be a numb"),
        (kopf.daemon, {"cancellation_timeout": "5"}, r"^on\.daemon: cancellation_timeout: '5': "),
        (kopf.timer, {"interval": "5"}, r"^on\.timer: interval: '5': must be a number of seconds"),
        (
            kopf.on.delete,
            {"errors": "retry"},
            r"^on\.delete: errors: 'retry': must be one of ErrorsM",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            decorator("pods", registry=registry, **settings)(fn)
    with pytest.raises(
        TypeError, match=r"^on\.startup: keyword resource: must be one of backoff, "
    ):
        kopf.on.startup(resource="pods")

    async def handler(resource: Any) -> None: ...

    for function in (fn, handler, lambda name, patch: None):
        with pytest.raises(TypeError, match=r"^on\.create: function .*: must take one resource"):
            kopf.on.create(function)
    with pytest.raises(TypeError, match=r"^on\.create: resource Pod and pods: must have exactly "):
        kopf.on.create("pods", kind="Pod")
    with pytest.raises(ValueError, match="labels: None is not a filter"):
        kopf.on.create("pods", labels={"a": None}, registry=registry)(fn)
    with pytest.raises(ValueError, match="operations"):
        kopf.on.validate("pods", operations=["PATCH"], registry=registry)(fn)
    with pytest.raises(TypeError, match="only be declared in a handler"):
        kopf.subhandler(id="x")


async def async_function(*_: Any, **__: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("decorator", "settings", "name"),
    [
        (kopf.on.event, {"when": async_function}, "on.event: when"),
        (kopf.on.create, {"labels": {"a": async_function}}, "on.create: labels: a"),
        (kopf.on.create, {"annotations": {"a": async_function}}, "on.create: annotations: a"),
        (kopf.index, {"field": "spec", "value": async_function}, "on.index: value"),
        (kopf.on.update, {"field": "spec", "old": async_function}, "on.update: old"),
        (kopf.on.field, {"field": "spec", "new": async_function}, "on.field: new"),
        (kopf.daemon, {"initial_delay": async_function}, "on.daemon: initial_delay"),
    ],
)
def test_async_filter_is_refused(decorator: Any, settings: dict[str, Any], name: str) -> None:
    """As a filter it would always be true."""
    with pytest.raises(
        TypeError, match=rf"^{name}: async function .*: must be a .* without async$"
    ):
        decorator("pods", registry=kopf.OperatorRegistry(), **settings)(lambda **_: None)


def test_async_lifecycle_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^lifecycle: async function .*: must be a function without"
    ):
        kopf.set_default_lifecycle(async_function)  # type: ignore[arg-type]


def test_setting_without_a_meaning_is_reported_and_an_unknown_one_is_refused() -> None:
    settings = kopf.OperatorSettings()
    with capture_logs() as logs:
        settings.execution.max_workers = 5
        settings.watching.server_timeout = 10  # type: ignore[attr-defined]
    assert [(entry["event"], entry["setting"]) for entry in logs] == [
        ("Setting is ignored", "watching.server_timeout")
    ]
    with pytest.raises(AttributeError, match=r"settings\.execution has no setting 'workers'"):
        settings.execution.workers = 5  # type: ignore[attr-defined]
    with pytest.raises(
        AttributeError, match=r"^settings\.watching\.label_selectors: not supported"
    ):
        settings.watching.label_selectors["pods"] = "app=web"
    with pytest.raises(AttributeError, match=r"^settings\.networking\.trust_env: has no value: "):
        _ = settings.networking.trust_env
    settings.persistence.finalizer = "cleanup"
    with pytest.raises(ValueError, match=r"^settings\.persistence\.finalizer: 'a b/c': must be"):
        settings.persistence.finalizer = "a b/c"
    with pytest.raises(TypeError, match=r"^settings\.persistence\.finalizer: None: must be"):
        settings.persistence.finalizer = None  # type: ignore[assignment]


def test_misspelled_parameter_of_an_operator_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^operator: keyword namepsaces: .*mean namespaces\?$"):
        kopf.run(namepsaces=["team-a"])
    with pytest.raises(TypeError, match=r"^configure: keyword logformat: .*mean log_format\?$"):
        kopf.configure(logformat="json")


def test_adopted_manifest_is_a_child_of_its_owner() -> None:
    metadata = {"name": "owner", "namespace": "ns", "uid": "1", "labels": {"a": "b"}}
    owner = {"apiVersion": "v1", "kind": "Owner", "metadata": metadata}
    child: dict[str, Any] = {"metadata": {"labels": {"a": "own"}}, "spec": {"template": {}}}
    for _ in range(2):
        kopf.adopt(child, owner, nested="spec.template")
    assert child == {
        "metadata": {
            "generateName": "owner-",
            "namespace": "ns",
            "labels": {"a": "own"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Owner",
                    "name": "owner",
                    "uid": "1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"template": {"metadata": {"labels": {"a": "b"}}}},
    }
    kopf.harmonize_naming(child, "name", forced=True, strict=True)
    kopf.remove_owner_reference(child, owner)
    assert (child["metadata"]["name"], child["metadata"]["ownerReferences"]) == ("name", [])
    with pytest.raises(LookupError, match="outside of a handler"):
        kopf.adopt({})


def test_login_and_events_outside_of_an_operator() -> None:
    info = kopf.ConnectionInfo(server="https://h", username="u", password="p", expiration=OLD)
    assert info.credentials().authorization == "Basic dTpw"
    assert info.is_expired(datetime.datetime.now(datetime.UTC))
    assert (
        kopf.ConnectionInfo(server="https://h", token="t").credentials().authorization == "Bearer t"
    )
    with pytest.raises(LookupError, match="in a handler"):
        kopf.info({}, reason="A", message="b")


async def test_patch_is_sent_again_while_the_server_is_overloaded_and_handlers_are_not_called_again() -> (
    None
):
    responses: list[Exception | dict[str, Any]] = [
        TooManyRequests(429, retry_after=0.002),
        TransportError("lost", outcome_unknown=True),
        {"metadata": {"name": "a", "uid": "1"}, "spec": {"x": 1}},
        WriteRejected("not the leader"),
        Conflict(409),
    ]
    slept: list[float] = []

    async def patch(*_: Any, **__: Any) -> dict[str, Any]:
        response = responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    environment: Any = SimpleNamespace(
        client=SimpleNamespace(patch=patch),
        patches=asyncio.Semaphore(1),
        clock=SimpleNamespace(sleep=sleep),
    )
    resource = kopf.Resource(group="", version="v1", plural="things", kind="Thing")
    obj = {"metadata": {"name": "a", "uid": "1"}}
    warnings: list[str] = []
    logger = SimpleNamespace(warning=warnings.append)
    stored = await apply_patch(
        environment, resource, obj, kopf.Patch({"spec": {"x": 1, "lost": 2}}), logger
    )
    assert stored == {"metadata": {"name": "a", "uid": "1"}, "spec": {"x": 1}}
    assert warnings == [
        "The API server dropped these fields, because the schema does not have them: spec.lost"
    ]
    assert slept == [0.5, 1.0]
    for error in (WriteRejected, Conflict):
        with pytest.raises(error):
            await apply_patch(environment, resource, obj, kopf.Patch({"spec": {"x": 1}}), logger)
    assert await apply_patch(environment, resource, obj, kopf.Patch(), logger) == obj


def test_command_imports_the_files_and_runs_the_operator_with_kopfs_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = kopf.OperatorRegistry()
    monkeypatch.setattr("cfo_handlers.declarations._default_registry", registry)
    (tmp_path / "neighbor.py").write_text("NAME = 'pods'\n")
    (tmp_path / "program.py").write_text(
        "from neighbor import NAME\nimport cfo_handlers as kopf\n"
        "@kopf.on.create(NAME)\ndef create(**_): ...\n"
    )
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("cfo_handlers.command.run", lambda **options: calls.append(options))
    monkeypatch.setattr("cfo_handlers.command.configure", lambda **options: calls.append(options))
    monkeypatch.syspath_prepend(tmp_path)
    arguments = [
        "run",
        "-n",
        "a",
        "-n",
        "b",
        "--dev",
        "-L",
        "http://:8080/healthz",
        "-v",
        str(tmp_path / "program.py"),
    ]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert [handler.id for handler in registry] == ["create"]
    assert calls == [
        {"verbose": True, "debug": False, "quiet": False, "log_format": "full"},
        {
            "clusterwide": False,
            "namespaces": ("a", "b"),
            "standalone": True,
            "peering_name": None,
            "liveness_endpoint": "http://:8080/healthz",
        },
    ]
    assert CliRunner().invoke(command, ["run", str(tmp_path / "missing.py")]).exit_code == 2
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module\n")
    result = CliRunner().invoke(command, ["run", str(broken)])
    assert result.exit_code == 1
    assert [line.strip() for line in result.output.splitlines()] == [
        "Traceback (most recent call last):",
        f'File "{broken}", line 1, in <module>',
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ]


async def test_stack_trace_is_logged_once_for_a_handler_that_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(retry: int, **_: Any) -> None:
        raise ValueError(f"boom {retry}")

    handler = TimerHandler(fn=fail, id="fail", interval=1)
    cause = Cause(Environment(kopf.OperatorRegistry()))
    state = HandlerState(started=cause.environment.now())
    for _ in range(2):
        outcome = await call_handler(handler, cause, state)
        state = state.after(outcome, cause.environment.now())
    await call_handler(handler, cause)  # for another change
    assert [record.exc_info is not None for record in caplog.records] == [True, False, True]
    assert [record.message[-6:] for record in caplog.records] == ["boom 0", "boom 1", "boom 0"]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda name: None, "must accept keywords that it does not use: add **_"),
        (lambda specc, **_: None, "keyword specc: must be one of "),
        (lambda name, /, **_: None, "parameter name: must be a keyword: remove the / after it"),
    ],
)
async def test_handler_that_would_fail_with_each_call_is_refused_at_the_start(
    function: Any, problem: str
) -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.create("pods", id="fn", registry=registry)(function)
    with pytest.raises(ValueError, match=rf"^Handler 'fn': {re.escape(problem)}"):
        await kopf.operator(registry=registry)


def test_handlers_that_can_be_called_are_accepted() -> None:
    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(**kwargs: Any) -> Any:
            return function(database=1, **kwargs)

        return call

    registry = kopf.OperatorRegistry()
    kopf.index("pods", id="ips", registry=registry)(lambda **_: None)
    kopf.on.create("pods", id="a", registry=registry)(lambda ips, name, limit=1, **_: None)
    kopf.on.create("pods", id="b", registry=registry)(decorated(lambda database, **_: None))
    kopf.on.create("pods", id="c", registry=registry)(functools.partial(lambda x, **_: None, 1))
    kopf.on.startup(id="d", registry=registry)(lambda settings, activity, **_: None)
    kopf.on.validate("pods", id="e", registry=registry)(lambda warnings, operation, **_: None)
    require_signatures(registry)
