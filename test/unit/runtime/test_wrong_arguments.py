"""Arguments of another type than expected are rejected with what is allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cfo.runtime.cache.informer import Informer, Reader
from cfo.runtime.cache.wait import wait_for
from cfo.runtime.client.child import Child
from cfo.runtime.client.child_results import ChildResults
from cfo.runtime.client.children import reconcile_children
from cfo.runtime.client.client import Client, PatchType
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.status import apply_status
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.controller import ControllerOptions
from cfo.runtime.controller.finalizer import Finalizer
from cfo.runtime.controller.handler import (
    EnqueueRequestForObject,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
)
from cfo.runtime.controller.predicate import ValueChanged, and_, from_functions, on_update
from cfo.runtime.controller.reconcile import Result
from cfo.runtime.controller.source import Channel
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects import field
from cfo.runtime.objects.conditions import Conditions
from cfo.runtime.objects.field import FieldErrors
from cfo.runtime.objects.kinds import CONFIG_MAP, SECRET, SERVICE
from cfo.runtime.objects.rbac import READ, Rule
from cfo.runtime.objects.resource.crd import custom_resource_definition
from cfo.runtime.objects.resource.custom_resource import CustomResource
from cfo.runtime.objects.resource.declaration import PrinterColumn
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    new_object,
    require_gvk,
    require_key,
    require_kind,
    require_namespace,
    set_controller_owner,
    split_kind,
)
from cfo.runtime.process.arguments import require_plain_function
from cfo.runtime.webhook.options import CertificateFiles, ServiceReference, WebhookOptions
from cfo.runtime.webhook.registration import Webhooks

ANY: Any = SimpleNamespace()
KIND = "must be a kind: a GVK, such as CONFIG_MAP, or a class that declares one"
KEY_OF_A = NamespacedName("default", "a")
CONFIG = ClientConfig(server="https://127.0.0.1:1")
OWNER = new_object(CONFIG_MAP, "owner", "default")
OWNER["metadata"]["uid"] = "1"
CHILD = new_object(SERVICE, "a", "default")
CHILD_OF_A = Child.present(CHILD)
KEY = "must be a NamespacedName of two strings, as in NamespacedName(namespace, name)"


def new_manager() -> Manager:
    return Manager(ClientConfig(server="https://127.0.0.1:1"))


def indexed() -> Informer:
    return new_manager().cache.informer(SERVICE).add_index("owner", lambda _: ())


def builder() -> Builder:
    return Builder(new_manager(), "name")


async def function(_: Any) -> Any:
    return Result()


class WithoutRequest:
    async def reconcile(self) -> Result:
        return Result()


def plain(_: Object) -> None:
    pytest.fail("must not be called")


class PlainRunnable:
    def run(self, *, task_status: object) -> None:
        pytest.fail("must not be called")


PLAIN_RUNNABLE = PlainRunnable()


class Website(CustomResource, group="example.com", version="v1"):
    """A kind."""


def declare(**keywords: Any) -> None:
    class Site(CustomResource, group="example.com", version="v1", **keywords):
        """A class whose declaration is invalid."""


def wrong(value: object) -> Any:
    """Return ``value`` as an argument that type checkers accept."""
    return value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: builder().for_(wrong("ConfigMap")), f"for_: 'ConfigMap': {KIND}"),
        (lambda: builder().owns(wrong("ConfigMap")), f"owns: 'ConfigMap': {KIND}"),
        (
            lambda: builder().watches(wrong("Service"), EnqueueRequestForObject()),
            f"watches: 'Service': {KIND}",
        ),
        (
            lambda: new_manager().when_available(wrong("A"), print),
            f"when_available: 'A': {KIND}",
        ),
        (
            lambda: new_manager().when_available(CONFIG_MAP, wrong(Result)),
            f"when_available: setup: {Result!r}: must be a function",
        ),
        (
            lambda: new_manager().when_available(CONFIG_MAP, wrong(lambda: None)),
            "when_available: setup(): must accept the parameters (manager)",
        ),
        (
            lambda: new_manager().cache.informer(wrong("A")),
            f"informer: 'A': {KIND}",
        ),
        (
            lambda: EnqueueRequestForOwner(wrong("A")),
            f"EnqueueRequestForOwner: 'A': {KIND}",
        ),
        (
            lambda: builder().reads(wrong("Service")),
            "reads: 'Service': must be an Informer, such as manager.cache.informer(KIND)",
        ),
        (
            lambda: ControllerOptions(reconcile_timeout=wrong(timedelta(seconds=5))),
            "reconcile_timeout: datetime.timedelta(seconds=5): must be a number of seconds, or None",
        ),
        (
            lambda: ControllerOptions(max_concurrent_reconciles=wrong("8")),
            "max_concurrent_reconciles: '8': must be an integer",
        ),
        (
            lambda: builder().watches(SERVICE, wrong(max)),
            (
                f"watches({SERVICE}): function max: must be an EventHandler, "
                "such as EnqueueRequestsFromMapFunc(function)"
            ),
        ),
        (
            lambda: builder().watches(SERVICE, wrong(EnqueueRequestForObject)),
            (
                f"watches({SERVICE}): {EnqueueRequestForObject!r}: must be an EventHandler, "
                "such as EnqueueRequestsFromMapFunc(function)"
            ),
        ),
        (
            lambda: builder().watches(SERVICE, wrong(SimpleNamespace(requests=function))),
            (
                f"watches({SERVICE}): SimpleNamespace.requests: async function function: must be a method that "
                "returns requests, without async"
            ),
        ),
        (
            lambda: Builder(wrong("m")),
            "Builder: 'm': must be a Manager, as in Builder(manager, 'website')",
        ),
        (
            lambda: Builder(new_manager(), wrong(SERVICE)),
            f"Builder: name: {SERVICE!r}: must be a string, such as website",
        ),
        (
            lambda: Transport(wrong("https://127.0.0.1:1")),
            (
                "config: a value of type str: must be a ClientConfig, such as await load_config() or "
                "ClientConfig.for_control_plane(plane)"
            ),
        ),
        (
            lambda: ClientConfig.for_control_plane(wrong("https://127.0.0.1:1")),
            "for_control_plane: 'https://127.0.0.1:1': must be a control plane, such as ControlPlane.embedded()",
        ),
        (
            lambda: Manager(wrong("https://127.0.0.1:1")),
            ("Manager: a str: must be a ClientConfig, such as await load_config(), or a Transport"),
        ),
        (
            lambda: builder().for_(CONFIG_MAP).complete(wrong(WithoutRequest())),
            "WithoutRequest.reconcile(): must accept the parameters (request)",
        ),
        (
            lambda: new_manager().health.add_ready_check("x", wrong(True)),
            "health check 'x': True: must be a function that raises an exception if unhealthy",
        ),
        (
            lambda: new_manager().cache.informer(SERVICE, namespace=wrong(KEY_OF_A)),
            f"informer: namespace: {KEY_OF_A!r}: must be the name of a namespace, a string",
        ),
        (
            lambda: builder().for_(CONFIG_MAP, **wrong({"labels": "app=web"})),
            (
                f"watch of {CONFIG_MAP}: keyword labels: must be one of label_selector, field_selector, namespace, "
                "other_namespaces, metadata_only, fields, max_bytes, budget_of"
            ),
        ),
        (
            lambda: (
                builder()
                .watches_source(wrong([]))
                .complete(wrong(SimpleNamespace(reconcile=function)))
            ),
            "source: []: must be a Source, such as Channel()",
        ),
        (
            lambda: (
                builder()
                .watches_source(wrong(Channel))
                .complete(wrong(SimpleNamespace(reconcile=function)))
            ),
            f"source: {Channel!r}: must be a Source, such as Channel()",
        ),
        (lambda: options(namespaces=[None]), "namespaces: None: must be a string"),
        (lambda: options(field_managers=[1]), "field_managers: 1: must be a string"),
        (
            lambda: new_manager().cache.informer(SERVICE, label_selector=wrong(["app"])),
            "informer: label_selector: ['app']: must be a string, such as app=web",
        ),
        (
            lambda: new_manager().cache.informer(SERVICE, field_selector=wrong({"a": "b"})),
            "informer: field_selector: {'a': 'b'}: must be a string, such as metadata.name=a",
        ),
        (
            lambda: declare(printer_columns=[("Ready", ".status.ready")]),
            "class Site: printer_columns: [('Ready', '.status.ready')]: must be a list of PrinterColumn(...)",
        ),
        (
            lambda: declare(printer_columns=PrinterColumn("Ready", ".status.ready")),
            (
                f"class Site: printer_columns: {PrinterColumn('Ready', '.status.ready')!r}: must be a list of "
                "PrinterColumn(...)"
            ),
        ),
        (
            lambda: declare(validations="self.x"),
            "class Site: validations: 'self.x': must be a list of CELRule(...)",
        ),
        (
            lambda: declare(scale=".spec.replicas"),
            "class Site: scale: '.spec.replicas': must be Scale(...)",
        ),
        (
            lambda: declare(short_name="ws"),
            (
                "class Site: keyword short_name: must be one of group, version, kind, plural, singular, scope, "
                "short_names, categories, printer_columns, validations, scale, storage, served, deprecation_warning"
            ),
        ),
        (
            lambda: builder().for_(CONFIG_MAP).complete(wrong(max)),
            (
                "<built-in function max>: must be an object with the method "
                "async def reconcile(self, request)"
            ),
        ),
        (
            lambda: new_manager().add(wrong(function(None))),
            "function(): must be the coroutine function: pass function, without a call",
        ),
        (lambda: new_manager().add(wrong(Result)), "Result: must be an instance, not the class"),
        (
            lambda: new_manager().add(wrong(7)),
            "runnable: 7: must be a coroutine function (async def), or an object with the method run",
        ),
        (
            lambda: new_manager().add(wrong(plain)),
            (
                "runnable: function plain: must be a coroutine function (async def), "
                "or an object with the method run"
            ),
        ),
        (
            lambda: new_manager().add(wrong(PLAIN_RUNNABLE)),
            "PlainRunnable.run: function PlainRunnable.run: must be a coroutine function (async def)",
        ),
        (
            lambda: Finalizer(wrong("x/y"), wrong(7)),
            "Finalizer(client, name): name: 7: must be a string",
        ),
        (
            lambda: Result(requeue_after=wrong(timedelta(seconds=5))),
            "requeue_after: datetime.timedelta(seconds=5): must be a number of seconds",
        ),
        (
            lambda: Result(requeue_after=wrong("5")),
            "requeue_after: '5': must be a number of seconds",
        ),
        (
            lambda: FieldErrors(wrong(field.required("a"))),
            (
                "FieldErrors: FieldError(reason='FieldValueRequired', field='a', value='', detail=''): must be a list "
                "of FieldError, such as [field.invalid(path, value, detail)]"
            ),
        ),
        (
            lambda: Rule("apps", "deployments", wrong((READ, "patch"))),
            (
                "Rule: verbs: ('get', 'list', 'watch'): must be a string; READ and CRUD need a star among others, "
                "as in (*READ, 'patch')"
            ),
        ),
        (
            lambda: Rule(wrong(None), "deployments", "get"),
            "Rule: group: None: must be an API group, such as apps; that of core is empty",
        ),
        (
            lambda: Rule("apps", wrong(None), "get"),
            "Rule: resources: None: must be a string or a list of strings",
        ),
        (
            lambda: FieldErrors(wrong("text")),
            "FieldErrors: 't': must be a FieldError, such as field.invalid(path, value, detail)",
        ),
    ],
)
def test_argument_of_another_type_is_rejected(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


def no_parameters() -> Any:
    """Return nothing that anything uses."""


def one_parameter(one: Any, /) -> Any:
    """Return nothing that anything uses."""


class WithoutRequestParameter:
    def default(self, obj: Object) -> None:
        """Accept no request."""

    def validate_create(self, obj: Object) -> None:
        """Accept no request."""

    def validate_update(self, old: Object, obj: Object) -> None:
        """Accept no request."""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: builder().for_(CONFIG_MAP, wrong(no_parameters)),
            f"predicate of {CONFIG_MAP}: no_parameters(): must accept the parameters (event)",
        ),
        (
            lambda: and_(wrong(no_parameters)),
            "and_: no_parameters(): must accept the parameters (event)",
        ),
        (
            lambda: on_update(wrong(one_parameter)),
            "on_update: one_parameter(one: 'Any', /): must accept the parameters (old, new)",
        ),
        (
            lambda: from_functions(create=wrong(no_parameters)),
            "from_functions: create: no_parameters(): must accept the parameters (entry)",
        ),
        (
            lambda: from_functions(update=wrong(one_parameter)),
            (
                "from_functions: update: one_parameter(one: 'Any', /): must accept the parameters "
                "(old, new)"
            ),
        ),
        (
            lambda: from_functions(delete=wrong(no_parameters)),
            "from_functions: delete: no_parameters(): must accept the parameters (entry)",
        ),
        (
            lambda: ValueChanged(CONFIG_MAP, wrong(no_parameters)),
            "ValueChanged: no_parameters(): must accept the parameters (object)",
        ),
        (
            lambda: EnqueueRequestsFromMapFunc(wrong(no_parameters)),
            "EnqueueRequestsFromMapFunc: no_parameters(): must accept the parameters (entry)",
        ),
        (
            lambda: new_manager().cache.informer(SERVICE).add_index("a", wrong(no_parameters)),
            "index 'a': no_parameters(): must accept the parameters (entry)",
        ),
        (
            lambda: builder().for_(SERVICE, budget_of=wrong(no_parameters)),
            "budget_of: no_parameters(): must accept the parameters (entry)",
        ),
        (
            lambda: Webhooks().register(SERVICE, defaulter=wrong(WithoutRequestParameter())),
            (
                f"{SERVICE}: defaulter WithoutRequestParameter.default(obj: 'Object'): must accept the parameters "
                "(obj, request)"
            ),
        ),
        (
            lambda: Webhooks().register(SERVICE, validator=wrong(WithoutRequestParameter())),
            (
                f"{SERVICE}: validator WithoutRequestParameter.validate_create(obj: 'Object'): must accept the "
                "parameters (obj, request)"
            ),
        ),
    ],
)
def test_function_that_does_not_accept_the_parameters_is_rejected(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


def test_function_with_unknown_parameters_is_accepted() -> None:
    require_plain_function("compute", max, "a function", "a", "b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"namespace": KEY_OF_A},
            f"list: namespace: {KEY_OF_A!r}: must be the name of a namespace, a string",
        ),
        (
            {"label_selector": {"app": "web"}},
            "list: label_selector: {'app': 'web'}: must be a string, such as app=web",
        ),
        (
            {"field_selector": {"spec.nodeName": "a"}},
            "list: field_selector: {'spec.nodeName': 'a'}: must be a string, such as spec.nodeName=a",
        ),
    ],
)
async def test_selector_that_is_no_text_is_rejected(options: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        await new_manager().client.list(CONFIG_MAP, **options)
    assert str(caught.value) == message


async def wait_with_cache(key: Any, timeout: Any) -> None:
    informer = new_manager().cache.informer(CONFIG_MAP)
    await informer.wait_for(key, bool, timeout=timeout)


async def wait_without_cache(key: Any, timeout: Any) -> None:
    await wait_for(new_manager().client, CONFIG_MAP, key, bool, timeout=timeout)


@pytest.mark.parametrize("wait", [wait_with_cache, wait_without_cache])
@pytest.mark.parametrize(
    ("key", "timeout", "message"),
    [
        ("a", 1.0, f"wait_for: 'a': {KEY}"),
        (
            KEY_OF_A,
            timedelta(seconds=1),
            "wait_for: timeout: datetime.timedelta(seconds=1): must be a number of seconds, or None",
        ),
    ],
)
async def test_wait_with_other_types_is_rejected(
    wait: Callable[[Any, Any], Awaitable[None]], key: Any, timeout: Any, message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        await wait(key, timeout)
    assert str(caught.value) == message


WRONG_KEYS: list[Any] = [
    "a",
    ("default", "a"),
    NamespacedName(wrong(None), "a"),
    NamespacedName("default", wrong(1)),
]


@pytest.mark.parametrize("key", WRONG_KEYS)
@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("get", ()),
        ("get_metadata", ()),
        ("get_subresource", ("status",)),
        ("create_subresource", ("eviction", {})),
        ("patch", ({},)),
        ("delete", ()),
    ],
)
async def test_key_that_is_no_namespaced_name_is_rejected(
    verb: str, arguments: tuple[Any, ...], key: Any
) -> None:
    client = new_manager().client
    with pytest.raises(TypeError) as caught:
        await getattr(client, verb)(CONFIG_MAP, key, *arguments)
    assert str(caught.value) == f"{CONFIG_MAP}: {key!r}: {KEY}"


def new_reader() -> Reader:
    return new_manager().cache.informer(CONFIG_MAP).reader


@pytest.mark.parametrize("key", WRONG_KEYS)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Reader.get", lambda key: new_reader().get(key)),
        ("Reader.entry", lambda key: new_reader().entry(key)),
        ("Reader.meta", lambda key: new_reader().meta(key)),
        ("Reader.contains", lambda key: new_reader().contains(key)),
        ("Reader.may_exist", lambda key: new_reader().may_exist(key)),
        ("cached", lambda key: new_manager().client.cached(CONFIG_MAP, key)),
        ("Child", lambda key: Child.absent(CONFIG_MAP, key)),
        ("Child", lambda key: Child.computed(CONFIG_MAP, key, lambda _: {})),
        ("ChildResults", lambda key: ChildResults(OWNER).get(CONFIG_MAP, key)),
        ("ChildResults", lambda key: ChildResults(OWNER).stored(CONFIG_MAP, key)),
        ("Website.intent", lambda key: Website.intent(key)),
    ],
)
def test_key_that_would_find_nothing_is_rejected(
    name: str, call: Callable[[Any], object], key: Any
) -> None:
    with pytest.raises(TypeError) as caught:
        call(key)
    assert str(caught.value) == f"{name}: {key!r}: {KEY}"


@pytest.mark.parametrize("namespace", [KEY_OF_A, None, 1])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Reader", lambda namespace: new_reader().list(namespace)),
        ("Reader", lambda namespace: new_reader().entries(namespace)),
        ("Reader.is_complete", lambda namespace: new_reader().is_complete(namespace)),
        (
            "Reader.has_all_left_out_keys",
            lambda namespace: new_reader().has_all_left_out_keys(namespace),
        ),
        ("Reader.left_out_keys", lambda namespace: new_reader().left_out_keys(namespace)),
        ("informer", lambda namespace: new_manager().cache.informer(SERVICE, namespace=namespace)),
        (
            "watches_namespace",
            lambda namespace: new_manager().cache.informer(SERVICE).watches_namespace(namespace),
        ),
    ],
)
def test_namespace_that_would_find_nothing_is_rejected(
    name: str, call: Callable[[Any], object], namespace: Any
) -> None:
    with pytest.raises(TypeError) as caught:
        call(namespace)
    assert str(caught.value) == (
        f"{name}: namespace: {namespace!r}: must be the name of a namespace, a string"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda value: indexed().reader.keys("owner", value),
        lambda value: indexed().reader.list(index=("owner", value)),
    ],
)
def test_value_that_no_index_contains_is_rejected(call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError) as caught:
        call(KEY_OF_A)
    assert str(caught.value) == f"index 'owner': value {KEY_OF_A!r}: must be a string"


@pytest.mark.parametrize("gvk", [Website, "Website", SERVICE.kind])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cached", lambda gvk: new_manager().client.cached(gvk, KEY_OF_A)),
        ("Child", lambda gvk: Child.absent(gvk, KEY_OF_A)),
        ("Child", lambda gvk: Child.computed(gvk, KEY_OF_A, lambda _: {})),
        ("ChildResults", lambda gvk: ChildResults(OWNER).get(gvk, KEY_OF_A)),
        ("ChildResults", lambda gvk: ChildResults(OWNER).stored(gvk, KEY_OF_A)),
        ("new_object", lambda gvk: new_object(gvk, "a")),
    ],
)
def test_class_or_text_in_place_of_a_gvk_is_rejected(
    name: str, call: Callable[[Any], object], gvk: Any
) -> None:
    with pytest.raises(TypeError) as caught:
        call(gvk)
    assert str(caught.value) == f"{name}: {gvk!r}: must be a GVK, such as CONFIG_MAP or Website.gvk"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("get", (KEY_OF_A,)),
        ("get_metadata", (KEY_OF_A,)),
        ("get_subresource", (KEY_OF_A, "status")),
        ("list", ()),
        ("create_subresource", (KEY_OF_A, "eviction", {})),
        ("patch", (KEY_OF_A, {})),
        ("delete", (KEY_OF_A,)),
    ],
)
async def test_kind_as_text_is_rejected_by_each_verb(verb: str, arguments: tuple[Any, ...]) -> None:
    client = new_manager().client
    with pytest.raises(TypeError) as caught:
        await getattr(client, verb)("ConfigMap", *arguments)
    assert str(caught.value) == f"{verb}: 'ConfigMap': {KIND}"


async def test_object_in_place_of_a_child_is_rejected() -> None:
    owner = new_object(CONFIG_MAP, "owner", "default")
    client: Client = new_manager().client
    children: list[Any] = [{"kind": "Service"}]
    with pytest.raises(TypeError) as caught:
        await reconcile_children(client, owner, children)
    assert str(caught.value) == (
        "children: a value of type dict: must be a Child, such as Child.present(obj)"
    )


@pytest.mark.parametrize("children", [CHILD_OF_A, None, 5])
async def test_children_that_are_no_list_are_rejected(children: Any) -> None:
    with pytest.raises(TypeError) as caught:
        await reconcile_children(new_manager().client, OWNER, children)
    assert str(caught.value) == (
        f"children: {children!r}: must be a list of Child, such as [Child.present(obj)]"
    )


async def test_missing_name_of_a_child_is_named() -> None:
    children = [Child.present(new_object(CONFIG_MAP, ""))]
    with pytest.raises(ValueError, match=r"children: ConfigMap : metadata\.name is missing"):
        await reconcile_children(new_manager().client, OWNER, children)


async def test_missing_namespace_of_a_child_is_named() -> None:
    children = [Child.present(new_object(CONFIG_MAP, "a"))]
    with pytest.raises(ValueError, match="namespace") as caught:
        await reconcile_children(new_manager().client, OWNER, children)
    assert str(caught.value) == (
        "children: ConfigMap a: metadata.namespace is missing: must be default, that of its owner; a cluster-scoped "
        "child needs belongs, a function that recognizes the object"
    )


def test_errors_contain_no_content_of_objects() -> None:
    secret = new_object(SECRET, "a", "default", data={"password": "c2VjcmV0"})
    child_of_secret: Any = Child.present(secret, current=secret)
    calls: list[Callable[[], object]] = [
        lambda: require_kind("get", secret),
        lambda: require_gvk("cached", secret),
        lambda: require_key("get", secret),
        lambda: require_namespace("list", secret),
        lambda: child_of_secret in ChildResults(OWNER),
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert "must be" in str(caught.value)
        assert "c2VjcmV0" not in str(caught.value)
    assert repr(child_of_secret) == "Child(Secret default/a)"


MERGE = "must be a dict for PatchType.MERGE"
JSON = "must be a list of operations for PatchType.JSON"


@pytest.mark.parametrize(
    ("body", "patch_type", "message"),
    [
        ([], PatchType.MERGE, f"patch: body: a value of type list: {MERGE}"),
        ("{}", PatchType.MERGE, f"patch: body: a value of type str: {MERGE}"),
        ({}, PatchType.JSON, f"patch: body: a value of type dict: {JSON}"),
        ("[]", PatchType.JSON, f"patch: body: a value of type str: {JSON}"),
        (
            {},
            "merge",
            "patch: patch_type: 'merge': must be a PatchType, such as PatchType.JSON",
        ),
    ],
)
async def test_body_that_does_not_fit_the_type_of_a_patch_is_rejected(
    body: Any, patch_type: Any, message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        await new_manager().client.patch(CONFIG_MAP, KEY_OF_A, body, patch_type)
    assert str(caught.value) == message


async def test_status_of_a_key_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"^NamespacedName: must be a dict, a TypedObject"):
        await apply_status(new_manager().client, wrong(KEY_OF_A), {})


def child(name: str, **options: Any) -> Child:
    return Child.present(new_object(CONFIG_MAP, name, "default"), **options)


@pytest.mark.parametrize(
    ("children", "message"),
    [
        (
            [child("a"), child("b"), child("a")],
            "children: ConfigMap default/a: must not be there twice",
        ),
        (
            [child("a", requires=(child("b").id,)), child("b")],
            "children: ConfigMap default/a: requires ConfigMap default/b, which must be an earlier child",
        ),
        (
            [child("a", requires=(child("a").id,))],
            "children: ConfigMap default/a: requires ConfigMap default/a, which must be an earlier child",
        ),
        (
            [child("a", fallback=child("b", requires=(child("c").id,)))],
            "children: ConfigMap default/a: requires ConfigMap default/c, which must be an earlier child",
        ),
    ],
)
async def test_children_that_cannot_all_be_as_desired_are_rejected_before_any_request(
    children: list[Child], message: str
) -> None:
    owner = new_object(CONFIG_MAP, "owner", "default")
    with pytest.raises(ValueError, match="children: ConfigMap") as caught:
        await reconcile_children(new_manager().client, owner, children)
    assert str(caught.value) == message


@pytest.mark.parametrize("requires", [child("b").id, "b", [child("b")], [()], child("b"), None])
async def test_requirements_that_are_no_list_of_ids_are_rejected(requires: Any) -> None:
    children = [child("b"), child("a", requires=requires)]
    with pytest.raises(TypeError) as caught:
        await reconcile_children(new_manager().client, OWNER, children)
    assert str(caught.value) == (
        f"children: ConfigMap default/a: requires {requires!r:.200}: must be a list of the ids of earlier "
        "children, such as [other.id]"
    )


@pytest.mark.parametrize("other", [child("b"), "b", child("b").key])
@pytest.mark.parametrize(
    "call",
    [
        lambda other: other in ChildResults(OWNER),
        lambda other: ChildResults(OWNER).is_done(other),
    ],
)
def test_what_is_no_id_of_a_child_is_rejected(call: Callable[[Any], object], other: Any) -> None:
    with pytest.raises(TypeError) as caught:
        call(other)
    assert str(caught.value) == (
        f"ChildResults: {other!r:.200}: must be the id of a child, such as child.id"
    )


async def test_child_in_place_of_its_id_is_not_pruned() -> None:
    other: Any = child("b")
    with pytest.raises(TypeError) as caught:
        await reconcile_children(new_manager().client, OWNER, [], prune=[other])
    assert (
        str(caught.value) == f"prune: {other!r:.200}: must be the id of a child, such as child.id"
    )


async def test_error_of_a_function_of_a_child_is_not_taken_for_a_wrong_child() -> None:
    def belongs(_: Object) -> bool:
        raise AttributeError("a mistake in the function")

    current = new_object(SERVICE, "a", "default")
    wanted = Child.present(current, belongs=belongs, current=current)
    owner = new_object(CONFIG_MAP, "owner", "default")
    with pytest.raises(AttributeError, match="a mistake in the function"):
        await reconcile_children(new_manager().client, owner, [wanted])


def options(**values: Any) -> ManagerOptions:
    return ManagerOptions(**values)


class Validator:
    def validate_create(self, obj: Object, request: Any) -> None:
        """Accept everything."""

    def validate_update(self, old: Object, obj: Object, request: Any) -> None:
        """Accept everything."""


def register(*, twice: bool = False, **options: Any) -> None:
    webhooks = Webhooks()
    webhooks.register(SERVICE, validator=wrong(Validator()), **options)
    if twice:
        other = GVK("example.com", "v1", SERVICE.kind)
        webhooks.register(other, validator=wrong(Validator()), **options)


HOOKS = ServiceReference("default", "hooks")
LONG = "x" * 129
NUMBER = "must be a number, or None"
ADDRESS = "must be a string, such as :8080, or 0 to disable"
CHARACTERS = "must be 1 to 128 printable characters, such as website-operator"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: options(leader_election=True),
            "leader_election: True: must be LeaderElectionOptions(...), or None",
        ),
        (lambda: options(webhook=True), "webhook: True: must be WebhookOptions(...), or None"),
        (lambda: options(metrics_tls="x"), "metrics_tls: 'x': must be MetricsTLS(...), or None"),
        (lambda: options(metrics_bind_address=8080), f"metrics_bind_address: 8080: {ADDRESS}"),
        (lambda: options(health_bind_address=None), f"health_bind_address: None: {ADDRESS}"),
        (lambda: options(debug_bind_address=6060), f"debug_bind_address: 6060: {ADDRESS}"),
        (
            lambda: options(metrics_bind_address="x"),
            "metrics_bind_address: 'x': must be HOST:PORT, :PORT, or 0 to disable",
        ),
        (lambda: options(namespace_bytes="1Mi"), "namespace_bytes: '1Mi': must be an integer"),
        (lambda: options(qps="5"), f"qps: '5': {NUMBER}"),
        (lambda: options(burst=True), f"burst: True: {NUMBER}"),
        (
            lambda: options(graceful_shutdown_timeout=timedelta(seconds=5)),
            f"graceful_shutdown_timeout: datetime.timedelta(seconds=5): {NUMBER}",
        ),
        (lambda: options(field_manager=""), f"field_manager: '': {CHARACTERS}"),
        (lambda: options(field_manager="  "), f"field_manager: '  ': {CHARACTERS}"),
        (lambda: options(field_manager="a\nb"), f"field_manager: 'a\\nb': {CHARACTERS}"),
        (lambda: options(field_manager=LONG), f"field_manager: '{LONG}': {CHARACTERS}"),
        (lambda: options(field_managers=[""]), f"field_manager: '': {CHARACTERS}"),
        (
            lambda: options(field_manager=7),
            "field_manager: 7: must be a string, such as website-operator",
        ),
        (
            lambda: new_manager().client.with_field_manager(""),
            f"field_manager: '': {CHARACTERS}",
        ),
        (
            lambda: Manager(CONFIG, options(selectors={"x": "y"})),
            f"selectors: 'x': {KIND}",
        ),
        (
            lambda: LeaderElectionOptions(name="a", namespace="b", lease_duration=wrong("15s")),
            "lease_duration: '15s': must be a number of seconds",
        ),
        (
            lambda: LeaderElectionOptions(name=wrong(7), namespace="b"),
            "leader election: name: 7: must be a string",
        ),
        (
            lambda: Conditions({}, now=wrong(1.5)),
            "now: 1.5: must be a datetime, such as manager.clock.now()",
        ),
        (
            lambda: builder().for_(GVK("apps/v1", "v1", "Deployment")),
            (
                "for_: GVK(group='apps/v1', version='v1', kind='Deployment'): group and version must be "
                "separate, as in GVK('apps', 'v1', 'Deployment')"
            ),
        ),
        *(
            (
                lambda gvk=gvk: builder().owns(gvk),
                f"owns: {gvk!r}: the group must come first, as in GVK('apps', 'v1', 'Deployment')",
            )
            for gvk in (GVK("v1", "apps", "Deployment"), GVK("v1beta1", "example.com", "Website"))
        ),
        (
            lambda: builder().owns(GVK("", "apps/v1", "Deployment")),
            (
                "owns: GVK(group='', version='apps/v1', kind='Deployment'): group and version must be "
                "separate, as in GVK('apps', 'v1', 'Deployment')"
            ),
        ),
        (
            lambda: new_manager().events("x").event(wrong(None), "Normal", "Reason", "message"),
            "event: None: must be an object: a dict or a typed resource",
        ),
        (
            lambda: EnqueueRequestsFromMapFunc(wrong(function)),
            (
                "EnqueueRequestsFromMapFunc: async function function: must be a function that returns "
                "requests, without async"
            ),
        ),
        (
            lambda: builder().owns(SERVICE, wrong(function)),
            (
                f"predicate of {SERVICE}: async function function: must be a function or an instance, such "
                "as GenerationChanged(), without async"
            ),
        ),
        (
            lambda: set_controller_owner(new_object(SERVICE, "a"), OWNER),
            (
                "Service.v1 a: metadata.namespace is missing: must be default, that of its owner; a "
                "cluster-scoped object cannot have an owner that is in a namespace"
            ),
        ),
        (
            lambda: set_controller_owner(CHILD, new_object(CONFIG_MAP, "owner", "default")),
            (
                "owner ConfigMap.v1 default/owner: uid: must not be empty; pass the object as the API server "
                "returned it"
            ),
        ),
        (
            lambda: set_controller_owner(CHILD, {"metadata": OWNER["metadata"]}),
            (
                "owner . default/owner: apiVersion, kind: must not be empty; pass the object as the API "
                "server returned it"
            ),
        ),
        (
            lambda: Rule("", "pods", ("get", "read")),
            (
                "rule for group '': verb 'read': must be a verb such as get, list, watch, create, update, "
                "patch or delete; READ and CRUD are constants of cfo.runtime"
            ),
        ),
        (
            lambda: Rule("", "pods", "GET"),
            (
                "rule for group '': verb 'GET': must be a verb such as get, list, watch, create, update, "
                "patch or delete; READ and CRUD are constants of cfo.runtime"
            ),
        ),
        (
            lambda: ValueChanged(SERVICE, function),
            (
                "ValueChanged: async function function: must be a function that returns a part of the "
                "object, without async"
            ),
        ),
        (
            lambda: new_manager().cache.informer(SERVICE).add_index("a", wrong(function)),
            (
                "index 'a': async function function: must be a function that returns strings, "
                "without async"
            ),
        ),
        (
            lambda: Manager(CONFIG, wrong({"qps": 1})),
            "options: {'qps': 1}: must be ManagerOptions(...), or None",
        ),
        (
            lambda: builder().with_options(wrong(8)),
            "with_options: 8: must be ControllerOptions(...)",
        ),
        (
            lambda: new_manager().elect(wrong("lease")),
            "elect: 'lease': must be LeaderElectionOptions(...)",
        ),
        (
            lambda: WebhookOptions(service=wrong("a/b")),
            "service: 'a/b': must be ServiceReference(namespace, name)",
        ),
        (
            lambda: WebhookOptions(service=HOOKS, url=wrong("https://a")),
            "url: 'https://a': must be WebhookURL.parse('https://HOST:PORT'), or None",
        ),
        (
            lambda: WebhookOptions(service=HOOKS, certificates=wrong("x")),
            (
                "certificates: 'x': must be RotatedCertificates(secret=...) or "
                "CertificateFiles(directory=...)"
            ),
        ),
        (
            lambda: WebhookOptions(service=HOOKS, mutating_configuration=wrong(None)),
            "mutating_configuration: None: must be a string",
        ),
        (
            lambda: register(operations=["delete"]),
            (
                "operations: 'delete': must be one of CREATE, UPDATE, DELETE, CONNECT, such as "
                "Operation.DELETE"
            ),
        ),
        (
            lambda: register(validator_operations=[]),
            "validator_operations: must not be empty",
        ),
        (
            lambda: CertificateFiles(directory=wrong("/certs")),
            "directory: '/certs': must be a Path, such as Path('/certs')",
        ),
        (
            lambda: split_kind({"metadata": {"name": "a"}}),
            "object 'a': apiVersion, kind: must not be empty",
        ),
        (
            lambda: register(failure_policy="ignore"),
            "failure_policy: 'ignore': must be one of Fail, Ignore",
        ),
        (
            lambda: register(twice=True),
            "name: 'vservice.kb.io': already used by another webhook; set validator_name of register",
        ),
        (
            lambda: new_manager().cache.informer(SERVICE, max_bytes=wrong("3Mi")),
            "informer: max_bytes: '3Mi': must be a number of bytes, such as 3 << 20",
        ),
        (
            lambda: new_manager().cache.informer(SERVICE, fields=(".spec.a",)),
            "fields: '.spec.a': must be names of fields, as in spec.replicas",
        ),
        (
            lambda: new_manager().cache.informer(SERVICE, fields=("spec.ports[0]",)),
            "fields: 'spec.ports[0]': must be names of fields, as in spec.replicas",
        ),
        (
            lambda: builder().owns(GVK("core", "v1", "Pod")),
            (
                "owns: GVK(group='core', version='v1', kind='Pod'): the group of core kinds must be "
                "empty, as in GVK('', 'v1', 'Pod')"
            ),
        ),
        (
            lambda: Rule("v1", "pods", "get"),
            (
                "rule for group 'v1': must be an API group, such as apps; that of core resources is "
                "empty"
            ),
        ),
        (
            lambda: options(namespaces=["Bad_ns"]),
            (
                "namespaces: 'Bad_ns': must be the name of a namespace: up to 63 lower-case letters, "
                "digits and -"
            ),
        ),
        (
            lambda: LeaderElectionOptions(name="X_y", namespace="default"),
            (
                "leader election: name: 'X_y': must be the name of an object: up to 253 lower-case "
                "letters, digits, - and ."
            ),
        ),
        (
            lambda: custom_resource_definition(wrong(SERVICE)),
            f"{SERVICE!r}: must be a class that declares a kind",
        ),
        (
            lambda: indexed().reader.list(index=("node", "a")),
            "index 'node': must be one that was added (owner)",
        ),
    ],
)
def test_wrong_value_is_rejected_with_what_is_allowed(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        call()
    assert caught.value.args == (message,)


async def without_parameters() -> None:
    pytest.fail("must not be called")


async def coroutine_function(_: Object) -> None:
    pytest.fail("must not be called")


@pytest.mark.parametrize("name", ["apply", "cleanup"])
@pytest.mark.parametrize(
    ("function", "shown"),
    [(plain, "function plain"), (7, "7"), (Result, repr(Result))],
    ids=["plain", "number", "class"],
)
@pytest.mark.parametrize("is_deleting", [False, True])
async def test_plain_function_for_a_finalizer_is_rejected(
    name: str, function: Any, shown: str, *, is_deleting: bool
) -> None:
    metadata: Object = {"namespace": "default", "name": "a"}
    if is_deleting:
        metadata |= {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/x"],
        }
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    functions: Any = {"apply": coroutine_function, "cleanup": coroutine_function, name: function}
    client_without_requests = ANY
    finalizer = Finalizer(client_without_requests, "example.com/x")
    with pytest.raises(TypeError) as caught:
        await finalizer.reconcile(obj, **functions)
    assert str(caught.value) == (
        f"Finalizer.reconcile: {name}: {shown}: must be a coroutine function (async def)"
    )


@pytest.mark.parametrize("name", ["apply", "cleanup"])
async def test_function_that_accepts_no_object_is_rejected_before_the_finalizer_is_added(
    name: str,
) -> None:
    functions: Any = {
        "apply": coroutine_function,
        "cleanup": coroutine_function,
        name: without_parameters,
    }
    client_without_requests = ANY
    finalizer = Finalizer(client_without_requests, "example.com/x")
    with pytest.raises(TypeError) as caught:
        await finalizer.reconcile(new_object(CONFIG_MAP, "a", "default"), **functions)
    assert str(caught.value) == (f"Finalizer.reconcile: {name}(): must accept the parameters (obj)")


@pytest.mark.parametrize(("is_deleting", "name"), [(False, "apply"), (True, "cleanup")])
async def test_other_result_of_a_function_of_a_finalizer_is_rejected(
    is_deleting: bool, name: str
) -> None:
    async def not_done(_: Object) -> bool:
        return False

    metadata: Object = {"namespace": "default", "name": "a", "finalizers": ["example.com/x"]}
    if is_deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    finalizer = Finalizer(ANY, "example.com/x")
    with pytest.raises(TypeError) as caught:
        await finalizer.reconcile(obj, apply=wrong(not_done), cleanup=wrong(not_done))
    assert str(caught.value) == (
        f"Finalizer.reconcile: {name}: returned a value of type bool: must return a Result or None"
    )
