"""The admission chain without a network: selectors, rules, plugins, policies, and what webhooks' answers do."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from cfo.envtest.admission.conditions import MatchConditions, asking, request_variables
from cfo.envtest.admission.matching import Matcher, Rule, label_selector
from cfo.envtest.admission.review import BadAnswer, Review, admission_request, rejection
from cfo.envtest.admission.serviceaccount import MOUNT_PATH
from cfo.envtest.admission.standard import standard_chain
from cfo.envtest.admission.webhook_client import CallFailed, ServiceEndpoints, WebhookClient
from cfo.envtest.auth.rbac import RBACAuthorizer
from cfo.envtest.context import RequestContext, User
from cfo.envtest.errors import GroupResource, StatusError
from cfo.envtest.registry import Registry, ResourceInfo, Subresource
from cfo.envtest.storage import Store
from cfo.envtest.strategy import Strategy
from cfo.runtime.objects import Object

GROUP = "admissionregistration.k8s.io"
ADMIN = User("admin", "admin", ("system:masters",))
MAPS = ResourceInfo("", "v1", "configmaps", "configmap", "ConfigMap", True, Strategy())
PODS = ResourceInfo("", "v1", "pods", "pod", "Pod", True, Strategy(), subresources={"status": Subresource("status")})
NODES = ResourceInfo("", "v1", "nodes", "node", "Node", False, Strategy())
NAMESPACES = ResourceInfo("", "v1", "namespaces", "namespace", "Namespace", False, Strategy())
SCALE = Subresource("scale", "Scale", "autoscaling", "v1")
DEPLOYMENTS = ResourceInfo(
    "apps", "v1", "deployments", "deployment", "Deployment", True, Strategy(), subresources={"scale": SCALE}
)


def context(info: ResourceInfo = MAPS, operation: str = "CREATE", *, name: str = "x", **more: Any) -> RequestContext:
    namespace = "a" if info.namespaced else ""
    verb = more.pop("verb", operation.lower())
    options = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    user = more.pop("user", ADMIN)
    return RequestContext(user, verb, info, namespace, name, operation=operation, options=options, **more)


def config_map(**labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a", "labels": labels}}


def put(
    store: Store, api_version: str, kind: str, plural: str, name: str, *, namespace: str = "", **fields: Any
) -> None:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
    store.create(GroupResource(api_version.rpartition("/")[0], plural), obj)


@pytest.fixture
def store() -> Store:
    store = Store()
    put(store, "v1", "Namespace", "namespaces", "a", metadata={"labels": {"team": "one"}})
    return store


# Selectors and rules


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (None, {}, True),
        ({}, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}, {"a": "c"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {"a": "b"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ],
)
def test_label_selectors(selector: dict[str, Any] | None, labels: dict[str, str], expected: bool) -> None:
    assert label_selector(selector).matches(labels) is expected


def rule(**fields: Any) -> Rule:
    return Rule({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], **fields})


@pytest.mark.parametrize(
    ("given", "ctx", "expected"),
    [
        (rule(), context(), True),
        (rule(operations=["UPDATE"]), context(), False),
        (rule(apiGroups=["apps"]), context(), False),
        (rule(apiVersions=["v2"]), context(), False),
        (rule(resources=["configmaps"]), context(), True),
        (rule(resources=["*"]), context(PODS, "UPDATE", subresource="status"), False),
        (rule(resources=["*/*"]), context(PODS, "UPDATE", subresource="status"), True),
        (rule(resources=["pods/*"]), context(PODS, "UPDATE", subresource="status"), True),
        (rule(resources=["pods/*"]), context(PODS, "UPDATE"), True),
        (rule(resources=["*/status"]), context(PODS, "UPDATE"), False),
        (rule(scope="Namespaced"), context(NODES), False),
        (rule(scope="Cluster"), context(NODES), True),
        (rule(scope="Cluster"), context(), False),
        (rule(scope="Cluster"), context(NAMESPACES), True),
        (rule(resourceNames=["y"]), context(), False),
        (rule(resourceNames=["x"]), context(), True),
    ],
)
def test_rules(given: Rule, ctx: RequestContext, expected: bool) -> None:
    assert given.matches(ctx, {}, ctx.info) is expected


def test_namespace_selectors(store: Store) -> None:
    matcher = Matcher(store, Registry())
    one, two = label_selector({"matchLabels": {"team": "one"}}), label_selector({"matchLabels": {"team": "two"}})
    assert matcher.namespace_matches(context(), config_map(), one)
    assert not matcher.namespace_matches(context(), config_map(), two)
    assert matcher.namespace_matches(context(NODES), {}, two)
    to_come = {"metadata": {"name": "b", "labels": {"team": "two"}}}
    assert matcher.namespace_matches(context(NAMESPACES, name="b"), to_come, two)
    assert not matcher.namespace_matches(context(NAMESPACES, "DELETE", name="a"), {}, two)


def test_object_selectors_look_at_both_states() -> None:
    selector = label_selector({"matchLabels": {"hook": "me"}})
    assert Matcher.object_matches(config_map(), config_map(hook="me"), selector)
    assert Matcher.object_matches(config_map(hook="me"), None, selector)
    assert not Matcher.object_matches({}, config_map(), selector)


def test_equivalent_resources_match_unless_told_otherwise(store: Store) -> None:
    registry = Registry()
    storage = GroupResource("acme.io", "widgets")
    old = ResourceInfo("acme.io", "v1", "widgets", "widget", "Widget", True, Strategy(), storage=storage)
    new = ResourceInfo("acme.io", "v2", "widgets", "widget", "Widget", True, Strategy(), storage=storage)
    registry.register(old)
    registry.register(new)
    rules = [rule(apiGroups=["acme.io"], apiVersions=["v1"])]
    match = Matcher(store, registry).match_rules(context(new), {}, rules, equivalent=True)
    assert match is not None
    assert match.info is old
    assert Matcher(store, registry).match_rules(context(new), {}, rules, equivalent=False) is None


# Reviews


def test_a_review_tells_everything() -> None:
    ctx = context(DEPLOYMENTS, "UPDATE", subresource="scale", name="d", dry_run=True)
    request = admission_request(ctx, {"kind": "Scale", "spec": {}}, {"kind": "Scale"})
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
    assert request["subResource"] == request["requestSubResource"] == "scale"
    assert (request["name"], request["namespace"], request["operation"], request["dryRun"]) == (
        "d",
        "a",
        "UPDATE",
        True,
    )
    assert request["userInfo"] == {"username": "admin", "uid": "admin", "groups": ["system:masters"]}
    deletion = admission_request(context(MAPS, "DELETE", verb="deletecollection"), {}, config_map())
    assert "name" not in deletion
    assert deletion["object"] is None
    assert admission_request(context(NAMESPACES, name="n"), {}, None)["namespace"] == "n"


def answer_to(review: Review, **response: Any) -> bytes:
    document = {"apiVersion": f"admission.k8s.io/{review.version}", "kind": "AdmissionReview"}
    return orjson.dumps({**document, "response": {"uid": review.uid, "allowed": True, **response}})


def test_a_verdict_is_read() -> None:
    review = Review({})
    patch = [{"op": "add", "path": "/x", "value": 1}]
    encoded = b64encode(json.dumps(patch).encode()).decode()
    body = answer_to(review, patch=encoded, patchType="JSONPatch", warnings=["w"], auditAnnotations={"k": "v"})
    verdict = review.verdict(body, mutating=True)
    assert (verdict.allowed, verdict.patch, verdict.warnings, verdict.audit) == (True, patch, ("w",), {"k": "v"})
    assert not review.verdict(answer_to(review, allowed=False), mutating=False).allowed


@pytest.mark.parametrize(
    ("response", "mutating", "problem"),
    [
        ({"uid": "wrong"}, True, "expected response.uid="),
        ({"patch": "W10="}, True, "webhook returned response.patch but not response.patchType"),
        ({"patchType": "JSONPatch"}, True, "webhook returned response.patchType but not response.patch"),
        ({"patch": "W10=", "patchType": "Merge"}, True, 'invalid response.patchType of "Merge"'),
        ({"patch": "W10=", "patchType": "JSONPatch"}, False, "validating webhook may not return response.patch"),
        ({"patch": "e30=", "patchType": "JSONPatch"}, True, "undecodable patch in webhook response"),
    ],
)
def test_answers_that_cannot_be_believed(response: dict[str, Any], mutating: bool, problem: str) -> None:
    review = Review({})
    with pytest.raises(BadAnswer, match=problem):
        review.verdict(answer_to(review, **response), mutating=mutating)


def test_answers_that_are_none() -> None:
    review = Review({})
    with pytest.raises(ValueError, match="malformed"):
        review.verdict(b"not json", mutating=True)
    with pytest.raises(ValueError, match="base64"):
        review.verdict(answer_to(review, patch="%%%", patchType="JSONPatch"), mutating=True)
    with pytest.raises(BadAnswer, match="webhook response was absent"):
        review.verdict(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', mutating=True)
    with pytest.raises(
        BadAnswer, match=r"expected webhook response of admission\.k8s\.io/v1, Kind=AdmissionReview, got v1"
    ):
        review.verdict(b'{"apiVersion":"v1","kind":"Pod","response":{}}', mutating=True)
    old = Review({}, ("v1beta1", "v1"))
    assert old.verdict(answer_to(old, uid="whatever"), mutating=True).allowed


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, 'admission webhook "w" denied the request without explanation'),
        ({"message": "no"}, 400, 'admission webhook "w" denied the request: no'),
        ({"reason": "NotFound", "code": 404}, 404, 'admission webhook "w" denied the request: NotFound'),
        ({"code": 200, "message": "no"}, 400, 'admission webhook "w" denied the request: no'),
    ],
)
def test_rejections(status: dict[str, Any] | None, code: int, message: str) -> None:
    refusal = rejection("w", status)
    assert (refusal.code, refusal.message) == (code, message)


# The chain, with webhooks that answer from a script

Script = Callable[[dict[str, Any]], dict[str, Any]]


class Scripted(WebhookClient):
    """Answers by url instead of calling it; keeps what was asked."""

    def __init__(self, store: Store, **answers: Script) -> None:
        super().__init__(ServiceEndpoints(store))
        self._answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def post(self, config: Mapping[str, Any], body: bytes, *, seconds: int) -> bytes:
        name = config["url"]
        request = orjson.loads(body)["request"]
        self.asked.append((name, request))
        answer = self._answers[name](request)
        if "fail" in answer:
            raise CallFailed(answer["fail"])
        if "patch" in answer:
            patch = b64encode(json.dumps(answer["patch"]).encode()).decode()
            answer = {**answer, "patch": patch, "patchType": "JSONPatch"}
        response = {"uid": request["uid"], "allowed": True, **answer}
        return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    @property
    def urls(self) -> list[str]:
        return [url for url, _ in self.asked]


def hook(name: str, **fields: Any) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    base = {"name": f"{name}.acme.io", "clientConfig": {"url": name}, "rules": rules, "sideEffects": "None"}
    return {**base, "admissionReviewVersions": ["v1"], **fields}


def configure(store: Store, kind: str, name: str, *hooks: dict[str, Any]) -> None:
    put(
        store,
        f"{GROUP}/v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        name,
        webhooks=hooks,
    )


def chain(store: Store, client: WebhookClient, *, service_accounts: bool = False) -> Any:
    return standard_chain(store, Registry(), RBACAuthorizer(store), client, service_accounts=service_accounts)


def labelling(key: str) -> Script:
    return lambda request: {"patch": [{"op": "add", "path": f"/metadata/labels/{key}", "value": "x"}]}


async def test_mutating_webhooks_run_by_configuration_name_and_see_each_others_changes(store: Store) -> None:
    configure(store, "Mutating", "b", hook("three"))
    configure(store, "Mutating", "a", hook("one"), hook("two"))
    client = Scripted(store, one=labelling("one"), two=labelling("two"), three=labelling("three"))
    ctx = context()
    original = config_map()
    result = await chain(store, client).mutate(ctx, original, None)
    assert client.urls == ["one", "two", "three"]
    assert list(client.asked[2][1]["object"]["metadata"]["labels"]) == ["one", "two"]
    assert list(result["metadata"]["labels"]) == ["one", "two", "three"]
    assert original["metadata"]["labels"] == {}
    annotation = ctx.audit["mutation.webhook.admission.k8s.io/round_0_index_0"]
    assert json.loads(annotation) == {"configuration": "a", "webhook": "one.acme.io", "mutated": True}


async def test_hooks_are_called_again_when_a_later_one_changed_the_object(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one", reinvocationPolicy="IfNeeded"), hook("two"), hook("three"))
    client = Scripted(store, one=lambda _: {}, two=labelling("two"), three=lambda _: {})
    await chain(store, client).mutate(context(), config_map(), None)
    assert client.urls == ["one", "two", "three", "one"]


async def test_nothing_is_called_again_without_a_change(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one", reinvocationPolicy="IfNeeded"), hook("two"))
    same = [{"op": "add", "path": "/metadata/name", "value": "x"}]
    client = Scripted(store, one=lambda _: {}, two=lambda _: {"patch": same})
    await chain(store, client).mutate(context(), config_map(), None)
    assert client.urls == ["one", "two"]


async def test_failures_count_by_policy(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one", failurePolicy="Ignore"), hook("two"))
    client = Scripted(store, one=lambda _: {"fail": "down"}, two=lambda _: {"fail": "down"})
    ctx = context()
    with pytest.raises(StatusError) as refusal:
        await chain(store, client).mutate(ctx, config_map(), None)
    assert refusal.value.code == 500
    assert refusal.value.message == (
        'Internal error occurred: failed calling webhook "two.acme.io": failed to call webhook: down'
    )
    assert ctx.audit["failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"] == "one.acme.io"


async def test_a_patch_that_does_not_apply_is_an_internal_error(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one"))
    client = Scripted(store, one=lambda _: {"patch": [{"op": "remove", "path": "/nosuch"}]})
    with pytest.raises(StatusError, match="error in remove for path: '/nosuch': Unable to remove nonexistent key"):
        await chain(store, client).mutate(context(), config_map(), None)


async def test_a_patch_of_a_deletion_is_refused(store: Store) -> None:
    configure(store, "Mutating", "m", hook("one"))
    client = Scripted(store, one=labelling("x"))
    with pytest.raises(StatusError, match="attempted to modify the object, which is not supported"):
        await chain(store, client).mutate(context(MAPS, "DELETE"), {}, config_map())


async def test_dry_runs_ask_only_hooks_without_side_effects(store: Store) -> None:
    configure(store, "Validating", "v", hook("one"), hook("two", sideEffects="NoneOnDryRun"))
    client = Scripted(store, one=lambda _: {}, two=lambda _: {}, three=lambda _: {})
    await chain(store, client).validate(context(dry_run=True), config_map(), None)
    assert sorted(client.urls) == ["one", "two"]
    configure(store, "Validating", "w", hook("three", sideEffects="Some", failurePolicy="Ignore"))
    with pytest.raises(StatusError, match=r'admission webhook "three\.acme\.io" does not support dry run') as refusal:
        await chain(store, client).validate(context(dry_run=True), config_map(), None)
    assert refusal.value.code == 400


async def test_the_first_refusing_validator_is_named_and_warnings_are_kept(store: Store) -> None:
    configure(store, "Validating", "v", hook("one"), hook("two"), hook("three"))
    no = {"allowed": False, "status": {"message": "no"}}
    client = Scripted(store, one=lambda _: {"warnings": ["careful"]}, two=lambda _: no, three=lambda _: no)
    ctx = context()
    with pytest.raises(StatusError, match=r'admission webhook "two\.acme\.io" denied the request: no'):
        await chain(store, client).validate(ctx, config_map(), None)
    assert ctx.warnings == ["careful"]
    assert sorted(client.urls) == ["one", "three", "two"]


async def test_webhooks_never_see_their_own_configurations(store: Store) -> None:
    everything = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
    configure(store, "Validating", "v", hook("one", rules=everything))
    plural = "validatingwebhookconfigurations"
    info = ResourceInfo(GROUP, "v1", plural, plural[:-1], "ValidatingWebhookConfiguration", False, Strategy())
    client = Scripted(store, one=lambda _: {"allowed": False})
    await chain(store, client).validate(context(info), {"metadata": {"name": "v"}}, None)
    assert client.urls == []


# Conditions

TRUE, FALSE, BROKEN = "object.metadata.name == 'x'", "request.userInfo.username != 'admin'", "object.spec.missing == 1"


@pytest.mark.parametrize(
    ("expressions", "ignore", "matches", "failed"),
    [
        ([TRUE], False, True, False),
        ([TRUE, FALSE], False, False, False),
        ([BROKEN, FALSE], False, False, False),
        ([TRUE, BROKEN], False, False, True),
        ([TRUE, BROKEN], True, False, False),
        (["1 +"], False, False, True),
        (["oldObject == null && request.operation == 'CREATE'"], False, True, False),
    ],
)
def test_match_conditions(store: Store, expressions: list[str], ignore: bool, matches: bool, failed: bool) -> None:
    conditions = MatchConditions([{"name": "n", "expression": each} for each in expressions], ignore_errors=ignore)
    ctx = context()
    variables = request_variables(admission_request(ctx, config_map(), None), ctx)
    conclusion = conditions.evaluate(variables, asking(RBACAuthorizer(store), ctx.user))
    assert (conclusion.matches, bool(conclusion.error)) == (matches, failed)


def test_expressions_can_ask_the_authorizer(store: Store) -> None:
    put(store, "v1", "Secret", "secrets", "s", namespace="a")
    ask = "authorizer.group('').resource('secrets').namespace('a').check('get').allowed()"
    path = "authorizer.path('/metrics').check('get').allowed()"
    for expression, user, expected in (
        (ask, ADMIN, True),
        (ask, User("alice"), False),
        (path, ADMIN, True),
        ("authorizer.requestResource.check('create').allowed()", ADMIN, True),
        ("!authorizer.serviceAccount('a', 'bot').group('').resource('secrets').check('get').allowed()", ADMIN, True),
    ):
        ctx = context(user=user)
        variables = request_variables(admission_request(ctx, config_map(), None), ctx)
        conditions = MatchConditions([{"name": "n", "expression": expression}], ignore_errors=False)
        conclusion = conditions.evaluate(variables, asking(RBACAuthorizer(store), user))
        assert (conclusion.matches, conclusion.error) == (expected, ""), expression


# Policies


def policy(store: Store, *validations: dict[str, Any], actions: tuple[str, ...] = ("Deny",), **spec: Any) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    body = {"matchConstraints": {"resourceRules": rules}, "validations": list(validations), **spec}
    binding = {"policyName": "p", "validationActions": list(actions), **body.pop("binding", {})}
    put(store, f"{GROUP}/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "p", spec=body)
    kind, plural = "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
    put(store, f"{GROUP}/v1", kind, plural, "b", spec=binding)


async def test_a_policy_denies(store: Store) -> None:
    policy(store, {"expression": "object.data.k != 'bad'", "message": "bad k"})
    admission = chain(store, Scripted(store))
    await admission.validate(context(), {**config_map(), "data": {"k": "good"}}, None)
    with pytest.raises(StatusError) as refusal:
        await admission.validate(context(), {**config_map(), "data": {"k": "bad"}}, None)
    said = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: bad k"
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")
    assert refusal.value.message == f'configmaps "x" is forbidden: {said}'
    assert refusal.value.details == {"name": "x", "kind": "configmaps", "causes": [{"message": said}]}


async def test_messages_and_reasons_of_policies(store: Store) -> None:
    policy(
        store,
        {
            "expression": "variables.n <= 2",
            "messageExpression": "'too many: ' + string(variables.n)",
            "reason": "Forbidden",
        },
        variables=[{"name": "n", "expression": "size(object.data)"}, {"name": "unused", "expression": "object.no"}],
    )
    with pytest.raises(StatusError, match="denied request: too many: 3") as refusal:
        await chain(store, Scripted(store)).validate(context(), {**config_map(), "data": dict.fromkeys("abc")}, None)
    assert refusal.value.code == 403


async def test_a_failing_expression_denies_unless_failures_are_ignored(store: Store) -> None:
    policy(store, {"expression": "object.no.such > 1"})
    with pytest.raises(StatusError, match=r"expression 'object\.no\.such > 1' resulted in error: no such key: no"):
        await chain(store, Scripted(store)).validate(context(), config_map(), None)
    lenient = Store()
    put(lenient, "v1", "Namespace", "namespaces", "a")
    policy(lenient, {"expression": "object.no.such > 1"}, failurePolicy="Ignore")
    await chain(lenient, Scripted(lenient)).validate(context(), config_map(), None)


async def test_a_policy_may_only_warn_and_note(store: Store) -> None:
    policy(store, {"expression": "false", "message": "hm"}, actions=("Warn", "Audit"))
    ctx = context()
    await chain(store, Scripted(store)).validate(ctx, config_map(), None)
    assert ctx.warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': hm"]
    (entry,) = json.loads(ctx.audit["validation.policy.admission.k8s.io/validation_failure"])
    assert (entry["policy"], entry["binding"], entry["expressionIndex"]) == ("p", "b", 0)


async def test_a_policy_without_a_binding_or_a_match_does_nothing(store: Store) -> None:
    policy(
        store, {"expression": "false"}, binding={"matchResources": {"namespaceSelector": {"matchLabels": {"no": "x"}}}}
    )
    await chain(store, Scripted(store)).validate(context(), config_map(), None)
    await chain(store, Scripted(store)).validate(context(PODS), {"metadata": {"name": "p"}}, None)


async def test_policies_take_parameters(store: Store) -> None:
    registry = Registry()
    registry.register(MAPS)
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    reference = {"name": "limits", "parameterNotFoundAction": "Deny"}
    validation = {"expression": "size(object.data) <= int(params.data.most)"}
    policy(store, validation, paramKind=kind, binding={"paramRef": reference})
    admission = standard_chain(store, registry, RBACAuthorizer(store), Scripted(store), service_accounts=False)
    obj = {**config_map(), "data": {"a": "1", "b": "2"}}
    with pytest.raises(StatusError, match="failed to configure binding: no params found for policy binding"):
        await admission.validate(context(), obj, None)
    put(store, "v1", "ConfigMap", "configmaps", "limits", namespace="a", data={"most": "1"})
    with pytest.raises(StatusError, match="failed expression"):
        await admission.validate(context(), obj, None)
    record = store.get(GroupResource("", "configmaps"), "a", "limits")
    assert record is not None
    store.update(GroupResource("", "configmaps"), {**record.obj(), "data": {"most": "2"}}, record)
    await admission.validate(context(), obj, None)


# Built-in plugins


async def test_nothing_new_in_an_absent_or_going_namespace(store: Store) -> None:
    admission = chain(store, Scripted(store))
    ctx = context()
    ctx.namespace = "gone"
    with pytest.raises(StatusError, match='namespaces "gone" not found') as refusal:
        await admission.mutate(ctx, config_map(), None)
    assert refusal.value.code == 404
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    put(store, "v1", "Namespace", "namespaces", "going", metadata=going)
    ctx.namespace = "going"
    with pytest.raises(
        StatusError, match="unable to create new content in namespace going because it is being"
    ) as refusal:
        await admission.mutate(ctx, config_map(), None)
    assert refusal.value.details is not None
    assert refusal.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    for operation in ("UPDATE", "DELETE"):
        ctx.operation = operation
        await admission.mutate(ctx, config_map(), config_map())


async def test_some_namespaces_stay(store: Store) -> None:
    admission = chain(store, Scripted(store))
    with pytest.raises(StatusError, match='namespaces "default" is forbidden: this namespace may not be deleted'):
        await admission.mutate(context(NAMESPACES, "DELETE", name="default"), {}, {"metadata": {"name": "default"}})
    await admission.mutate(context(NAMESPACES, "DELETE", name="other"), {}, {"metadata": {"name": "other"}})


def pod(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}], **spec},
    }


async def test_pods_get_priority_and_tolerations(store: Store) -> None:
    admission = chain(store, Scripted(store))
    spec = (await admission.mutate(context(PODS), pod(), None))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [each["key"].rpartition("/")[2] for each in spec["tolerations"]] == ["not-ready", "unreachable"]
    own = [{"operator": "Exists", "effect": "NoExecute"}]
    assert (await admission.mutate(context(PODS), pod(tolerations=own), None))["spec"]["tolerations"] == own


async def test_pods_get_their_priority_class(store: Store) -> None:
    admission = chain(store, Scripted(store))
    with pytest.raises(StatusError, match='pods "x" is forbidden: no PriorityClass with name high was found'):
        await admission.mutate(context(PODS), pod(priorityClassName="high"), None)
    api = "scheduling.k8s.io/v1"
    put(store, api, "PriorityClass", "priorityclasses", "high", value=7, preemptionPolicy="Never")
    put(store, api, "PriorityClass", "priorityclasses", "normal", value=3, globalDefault=True)
    spec = (await admission.mutate(context(PODS), pod(priorityClassName="high"), None))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    spec = (await admission.mutate(context(PODS), pod(), None))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("normal", 3)
    with pytest.raises(StatusError, match=r"the integer value of priority \(9\) must not be provided in pod spec"):
        await admission.mutate(context(PODS), pod(priority=9), None)


async def test_pods_get_their_service_account(store: Store) -> None:
    admission = chain(store, Scripted(store), service_accounts=True)
    with pytest.raises(
        StatusError, match=r'error looking up service account a/default: serviceaccount "default" not found'
    ):
        await admission.mutate(context(PODS), pod(), None)
    secrets = [{"name": "pull"}]
    put(store, "v1", "ServiceAccount", "serviceaccounts", "default", namespace="a", imagePullSecrets=secrets)
    spec = (await admission.mutate(context(PODS), pod(), None))["spec"]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert spec["imagePullSecrets"] == secrets
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": volume["name"], "readOnly": True, "mountPath": MOUNT_PATH}
    bare = (await admission.mutate(context(PODS), pod(automountServiceAccountToken=False), None))["spec"]
    assert "volumes" not in bare


async def test_claims_nodes_and_ingresses_are_completed(store: Store) -> None:
    admission = chain(store, Scripted(store))
    for api, kind, plural in (
        ("storage.k8s.io", "StorageClass", "storageclasses"),
        ("networking.k8s.io", "IngressClass", "ingressclasses"),
    ):
        annotation = f"{kind.lower()}.kubernetes.io/is-default-class"
        put(store, f"{api}/v1", kind, plural, "usual", metadata={"annotations": {annotation: "true"}})
    claims = ResourceInfo("", "v1", "persistentvolumeclaims", "x", "PersistentVolumeClaim", True, Strategy())
    claim = await admission.mutate(context(claims), {"metadata": {"name": "c"}}, None)
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert claim["spec"]["storageClassName"] == "usual"
    named = {"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}
    assert (await admission.mutate(context(claims), named, None))["spec"]["storageClassName"] == ""
    ingresses = ResourceInfo("networking.k8s.io", "v1", "ingresses", "ingress", "Ingress", True, Strategy())
    ingress = await admission.mutate(context(ingresses), {"metadata": {"name": "i"}}, None)
    assert ingress["spec"]["ingressClassName"] == "usual"
    node = await admission.mutate(context(NODES), {"metadata": {"name": "n"}}, None)
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
