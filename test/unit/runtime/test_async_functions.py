"""Async functions are refused at once where the library calls a function and does not await the result.

A coroutine counts as true, is never run, and its errors are never seen. The rule holds for each public parameter and
field that is such a function; ``hack/public_api.txt`` lists them. A lambda that calls an async function can be found
only by its result.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import import_module
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any, get_args, get_origin

import orjson
import pytest

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.selectors import Selection
from cfo.runtime.cache.store import Event, EventType, Store
from cfo.runtime.cache.wait import wait_for
from cfo.runtime.client.child import Child, Update
from cfo.runtime.client.children import reconcile_children
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import Resource
from cfo.runtime.client.ratelimit import Backoff
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.controller.controller import Controller
from cfo.runtime.controller.handler import EnqueueRequestForObject, EnqueueRequestsFromMapFunc
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.predicate import (
    ValueChanged,
    and_,
    from_functions,
    not_,
    on_update,
    or_,
    passes,
)
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.controller.source import Kind
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.conditions import Conditions
from cfo.runtime.objects.kinds import CONFIG_MAP, NAMESPACE
from cfo.runtime.objects.unstructured import GVK, NamespacedName, new_object
from cfo.runtime.process.clock import SystemClock
from cfo.runtime.process.nested_json import decode_object
from cfo.runtime.process.threads import ThreadPool
from cfo.runtime.webhook.admission import AdmissionRequest
from hack import ROOT
from hack.generate.public_api import exported_names

UNUSED: Any = SimpleNamespace()
CONFIG = ClientConfig(server="https://127.0.0.1:1")
KEY = NamespacedName("default", "a")
OWNER = new_object(CONFIG_MAP, "owner", "default")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def manager() -> Manager:
    return Manager(CONFIG)


def cache() -> Cache:
    return manager().cache


def informer() -> Informer:
    return cache().informer(CONFIG_MAP)


def builder() -> Builder:
    return Builder(manager(), "name")


def client() -> Client:
    return manager().client


async def write(**options: Any) -> None:
    child = Child.present(new_object(CONFIG_MAP, "a", "default"), **options)
    await reconcile_children(client(), OWNER, [child])


async def write_computed(function: Any) -> None:
    await reconcile_children(client(), OWNER, [Child.computed(CONFIG_MAP, KEY, function)])


async def create(function: Any) -> None:
    async def resource(gvk: GVK, **_: Any) -> Resource:
        return Resource(gvk=gvk, plural="namespaces", namespaced=False)

    mapper: Any = SimpleNamespace(resource=resource)
    creating = Client(UNUSED, mapper, field_manager="test")
    await creating.create(new_object(NAMESPACE, "a"), on_warning=function)


class IdleReconciler:
    async def reconcile(self, request: Request) -> Result:
        return Result()


CALLS: dict[str, Callable[[Any], Any]] = {
    "cache.cache.Cache.informer: budget_of": lambda f: cache().informer(NAMESPACE, budget_of=f),
    "cache.cache.Cache.report_left_out: report": lambda f: cache().report_left_out(f),
    "cache.informer.Informer.__init__: report_left_out": lambda f: Informer(
        UNUSED, UNUSED, CONFIG_MAP, report_left_out=f
    ),
    "cache.informer.Informer.__init__: report_restore": lambda f: Informer(
        UNUSED, UNUSED, CONFIG_MAP, report_restore=f
    ),
    "cache.informer.Informer.wait_for: condition": lambda f: informer().wait_for(
        KEY, f, timeout=None
    ),
    "cache.informer.Informer.add_handler: handler": lambda f: informer().add_handler(f),
    "cache.informer.Informer.add_state_handler: handler": lambda f: informer().add_state_handler(f),
    "cache.informer.Informer.add_index: function": lambda f: informer().add_index("name", f),
    "cache.selectors.Selection.budget_of": lambda f: Selection(budget_of=f),
    "cache.selectors.Selection.of: budget_of": lambda f: Selection.of(budget_of=f),
    "cache.wait.wait_for: condition": lambda f: wait_for(
        client(), CONFIG_MAP, KEY, f, timeout=None
    ),
    "client.child.Child.compute": write_computed,
    "client.client.Client.select: select": lambda f: client().select(CONFIG_MAP, f),
    "client.children.reconcile_children: keep": lambda f: reconcile_children(
        client(), OWNER, [], keep=f
    ),
    "client.child.Child.computed: compute": write_computed,
    "client.child.Child.update": lambda f: write(update=f),
    "client.child.Child.belongs": lambda f: write(belongs=f),
    "client.child.Child.is_trusted": lambda f: write(is_trusted=f),
    "client.child.Child.adoption": lambda f: write(adoption=f),
    "client.child.ChildOptions.update": lambda f: write(update=f),
    "client.child.ChildOptions.belongs": lambda f: write(belongs=f),
    "client.child.ChildOptions.is_trusted": lambda f: write(is_trusted=f),
    "client.child.ChildOptions.adoption": lambda f: write(adoption=f),
    "client.client.Client.create: on_warning": create,
    "client.ratelimit.Backoff.__init__: random": lambda f: Backoff(SystemClock(), f),
    "client.transport.APIRequest.on_warning": lambda f: APIRequest("GET", "/", on_warning=f),
    "client.transport.Transport.__init__: observe": lambda f: Transport(CONFIG, observe=f),
    "controller.controller.Controller.__init__: report_invalid": lambda f: Controller(
        "name", IdleReconciler(), report_invalid=f
    ),
    "controller.handler.EnqueueRequestsFromMapFunc.__init__: function": EnqueueRequestsFromMapFunc,
    "controller.metrics.Metrics.observe_cache: informers": lambda f: Metrics().observe_cache(f),
    "controller.predicate.ValueChanged.__init__: value": partial(ValueChanged, CONFIG_MAP),
    "controller.predicate.and_: predicates": and_,
    "controller.predicate.or_: predicates": or_,
    "controller.predicate.not_: predicate": not_,
    "controller.predicate.from_functions: create": lambda f: from_functions(create=f),
    "controller.predicate.from_functions: update": lambda f: from_functions(update=f),
    "controller.predicate.from_functions: delete": lambda f: from_functions(delete=f),
    "controller.predicate.on_update: changed": on_update,
    "controller.source.Kind.__init__: predicates": lambda f: Kind(
        informer(), EnqueueRequestForObject(), f, mapper=UNUSED
    ),
    "manager.builder.Builder.for_: predicates": lambda f: builder().for_(CONFIG_MAP, f),
    "manager.builder.Builder.owns: predicates": lambda f: builder().owns(CONFIG_MAP, f),
    "manager.builder.Builder.watches: predicates": lambda f: builder().watches(
        CONFIG_MAP, EnqueueRequestForObject(), f
    ),
    "manager.builder.SelectionKeywords.budget_of": lambda f: builder().for_(NAMESPACE, budget_of=f),
    "objects.conditions.Conditions.__init__: time_format": lambda f: Conditions(
        {}, now=NOW, time_format=f
    ),
    "process.clock.SystemClock.call_later: callback": lambda f: SystemClock().call_later(0, f),
    "process.nested_json.decode_object: decode": lambda f: decode_object(f, b"{}"),
    "process.threads.ThreadPool.run: function": ThreadPool("pool", 1).run,
    "webhook.admission.AdmissionRequest.compute: function": AdmissionRequest().compute,
    "webhook.admission.AdmissionRequest.compute_next: function": AdmissionRequest().compute_next,
}

EXCEPTIONS = {
    "cache.index.IndexFunction": "a type",
    "cache.informer.Informer.remove_handler: handler": "it was never added",
    "cache.informer.Informer.remove_state_handler: handler": "it was never added",
    "process.clock.Clock.call_later: callback": "a protocol, which SystemClock implements",
}


CONFIG_MAP_A = new_object(CONFIG_MAP, "a", "default")
DECODER = EntryDecoder(CONFIG_MAP)
STATE_1 = DECODER.decode(orjson.dumps(CONFIG_MAP_A))
STATE_2 = DECODER.decode(orjson.dumps({**CONFIG_MAP_A, "data": {"a": "b"}}))
NAMESPACE_A = EntryDecoder(NAMESPACE).decode(orjson.dumps(new_object(NAMESPACE, "a")))
CREATED = Event(EventType.ADDED, KEY, None, STATE_1)
UPDATED = Event(EventType.UPDATED, KEY, STATE_1, STATE_2)
DELETED = Event(EventType.DELETED, KEY, STATE_2, None)


def charge(function: Any) -> None:
    store = Store(deliver=UNUSED, clock=UNUSED, selection=Selection(budget_of=function))
    store.put(NAMESPACE_A)


async def update(keep: Any = None, **functions: Any) -> None:
    options: Any = {"belongs": lambda _: True, **functions}
    child = Child.present(CONFIG_MAP_A, current=CONFIG_MAP_A, **options)
    await reconcile_children(client(), OWNER, [child], keep=keep)


async def compute(function: Any) -> None:
    child = Child.computed(CONFIG_MAP, KEY, function, current=CONFIG_MAP_A, belongs=lambda _: True)
    await reconcile_children(client(), OWNER, [child])


USES: dict[str, Callable[[Any], Any]] = {
    "cache.selectors.Selection.budget_of": charge,
    "client.child.Child.compute": compute,
    "client.child.Child.update": lambda f: update(update=f),
    "client.child.Child.belongs": lambda f: update(belongs=f),
    "client.child.Child.is_trusted": lambda f: update(is_trusted=f),
    "client.child.Child.adoption": lambda f: update(adoption=f),
    "client.children.reconcile_children: keep": lambda f: update(keep=f, update=Update.KEEP),
    "controller.handler.EnqueueRequestsFromMapFunc.__init__: function": lambda f: (
        EnqueueRequestsFromMapFunc(f).requests(CREATED)
    ),
    "controller.predicate.ValueChanged.__init__: value": lambda f: ValueChanged(CONFIG_MAP, f)(
        UPDATED
    ),
    "controller.predicate.and_: predicates": lambda f: and_(f)(CREATED),
    "controller.predicate.or_: predicates": lambda f: or_(f)(CREATED),
    "controller.predicate.not_: predicate": lambda f: not_(f)(CREATED),
    "controller.predicate.from_functions: create": lambda f: from_functions(create=f)(CREATED),
    "controller.predicate.from_functions: update": lambda f: from_functions(update=f)(UPDATED),
    "controller.predicate.from_functions: delete": lambda f: from_functions(delete=f)(DELETED),
    "controller.predicate.on_update: changed": lambda f: on_update(f)(UPDATED),
    "controller.source.Kind.__init__: predicates": lambda f: passes(f, CREATED),
    "objects.conditions.Conditions.__init__: time_format": lambda f: Conditions(
        {}, now=NOW, time_format=f
    ),
}

PASSED_ON = {
    "cache.cache.Cache.informer: budget_of": "cache.selectors.Selection.budget_of",
    "cache.selectors.Selection.of: budget_of": "cache.selectors.Selection.budget_of",
    "manager.builder.SelectionKeywords.budget_of": "cache.selectors.Selection.budget_of",
    "client.child.Child.computed: compute": "client.child.Child.compute",
    "client.child.ChildOptions.update": "client.child.Child.update",
    "client.child.ChildOptions.belongs": "client.child.Child.belongs",
    "client.child.ChildOptions.is_trusted": "client.child.Child.is_trusted",
    "client.child.ChildOptions.adoption": "client.child.Child.adoption",
    "manager.builder.Builder.for_: predicates": "controller.source.Kind.__init__: predicates",
    "manager.builder.Builder.owns: predicates": "controller.source.Kind.__init__: predicates",
    "manager.builder.Builder.watches: predicates": "controller.source.Kind.__init__: predicates",
}
"""The parameter or field that a function is passed on to."""

IGNORED = "nothing uses its result, and Python warns that it was never awaited"
RETURNED = "its result is returned to the caller"
FAILS = "any use of its result fails"

OTHER_RESULTS = {
    "cache.cache.Cache.report_left_out: report": IGNORED,
    "cache.informer.Informer.__init__: report_left_out": IGNORED,
    "cache.informer.Informer.__init__: report_restore": IGNORED,
    "cache.informer.Informer.add_handler: handler": IGNORED,
    "cache.informer.Informer.add_state_handler: handler": IGNORED,
    "cache.informer.Informer.add_index: function": "an index logs it, see test_store.py",
    "cache.informer.Informer.wait_for: condition": "see test_cache.py",
    "cache.wait.wait_for: condition": "see test_cache.py",
    "client.client.Client.create: on_warning": IGNORED,
    "client.client.Client.select: select": RETURNED,
    "client.ratelimit.Backoff.__init__: random": FAILS,
    "controller.controller.Controller.__init__: report_invalid": IGNORED,
    "client.transport.APIRequest.on_warning": IGNORED,
    "client.transport.Transport.__init__: observe": IGNORED,
    "controller.metrics.Metrics.observe_cache: informers": FAILS,
    "process.clock.SystemClock.call_later: callback": IGNORED,
    "process.nested_json.decode_object: decode": RETURNED,
    "process.threads.ThreadPool.run: function": RETURNED,
    "webhook.admission.AdmissionRequest.compute: function": RETURNED,
    "webhook.admission.AdmissionRequest.compute_next: function": RETURNED,
}


def is_synchronous(callback: Any) -> bool:
    """Return whether a type is, or can be, a function whose result is not awaited."""
    if get_origin(callback) is get_origin(Callable[[], Any]):
        return "Awaitable" not in str(get_args(callback)[1])
    return any(map(is_synchronous, get_args(callback)))


def has_synchronous_callback(annotation: ast.expr, module: dict[str, Any]) -> bool:
    """Return whether an annotation contains a function whose result is not awaited, or the name of such a type."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Callable":
            arguments = node.slice
            assert isinstance(arguments, ast.Tuple)
            if "Awaitable" not in ast.unparse(arguments.elts[1]):
                return True
        if isinstance(node, ast.Name) and is_synchronous(module.get(node.id)):
            return True
    return False


@lru_cache(maxsize=1)
def public_modules() -> tuple[str, ...]:
    """Return the modules with public names; reading their files takes 10 ms."""
    return tuple(exported_names())


def module_of(name: str) -> dict[str, Any]:
    """Return the names that the module of a public name can use."""
    module = max((each for each in public_modules() if name.startswith(f"{each}.")), key=len)
    return vars(import_module(f"cfo.runtime.{module}"))


def parameters_of(signature: str) -> Iterator[ast.arg]:
    """Yield the parameters of a function that have an annotation."""
    function = ast.parse(f"def function{signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs):
        if each is not None and each.annotation is not None:
            yield each


def public_callbacks() -> Iterator[str]:
    """Yield each public parameter, field and type that is a function whose result is not awaited."""
    for line in (ROOT / "hack" / "public_api.txt").read_text().splitlines():
        found = re.search(r"[a-z_]+\.[\w.]+", line)
        assert found is not None
        name = found.group(0)
        rest = line[found.end() :]
        module = module_of(name)
        if "def " in line[: found.start()]:
            for parameter in parameters_of(rest):
                assert parameter.annotation is not None
                if has_synchronous_callback(parameter.annotation, module):
                    yield f"{name}: {parameter.arg}"
        elif rest.startswith((": ", " = ")):
            annotation = rest.removeprefix(": ").removeprefix(" = ").partition(" = ")[0]
            if has_synchronous_callback(ast.parse(annotation, mode="eval").body, module):
                yield name


def test_each_public_function_that_is_not_awaited_has_a_case() -> None:
    assert {*CALLS, *EXCEPTIONS} == set(public_callbacks())


def test_each_result_of_a_public_function_has_a_case() -> None:
    assert {*USES, *PASSED_ON, *OTHER_RESULTS} == set(CALLS)
    assert set(PASSED_ON.values()) <= set(USES)


async def coroutine_function(*_: object) -> bool:
    return True


async def asynchronous_generator(*_: object) -> AsyncIterator[bool]:
    yield True


class Callback:
    async def __call__(self, *_: object) -> bool:
        return True


async def call(name: str, function: Any, calls: Mapping[str, Callable[[Any], Any]] = CALLS) -> None:
    result = calls[name](function)
    if isawaitable(result):
        await result


@pytest.mark.parametrize(
    "function",
    [coroutine_function, asynchronous_generator, Callback(), partial(coroutine_function)],
    ids=["function", "generator", "instance", "partial"],
)
@pytest.mark.parametrize("name", CALLS)
async def test_async_function_is_refused(name: str, function: Any) -> None:
    with pytest.raises(TypeError, match=r": async function .*: must be .*, without async$"):
        await call(name, function)


@pytest.mark.parametrize("name", USES)
async def test_lambda_that_calls_an_async_function_is_refused(name: str) -> None:
    def function(*arguments: object) -> object:
        return coroutine_function(*arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            TypeError, match=r"returned a value of type coroutine: must return "
        ) as caught:
            await call(name, function, USES)
    named, _, _ = str(caught.value).partition(" returned ")
    parameter = re.split(r"\W+", name)[-1]
    assert function.__qualname__ in named or parameter in named


def test_error_of_a_lambda_has_its_file_and_line() -> None:
    handler = EnqueueRequestsFromMapFunc(lambda _: None)  # type: ignore[arg-type,return-value]
    line = handler.function.__code__.co_firstlineno
    with pytest.raises(
        TypeError, match=rf"<lambda> in .*test_async_functions\.py:{line}: returned"
    ):
        handler.requests(CREATED)
