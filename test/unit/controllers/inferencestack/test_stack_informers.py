"""The objects and pods of stacks, who has their hosts, and who reconciles them, from informers without a server."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.names import (
    CHART_NAME,
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    NAME_LABEL,
)
from cfo.controllers.inferencestack.children import StackInformers
from cfo.controllers.inferencestack.claims import _problem, _reporter
from cfo.controllers.inferencestack.hosts import StackHosts
from cfo.controllers.inferencestack.pods import (
    MAX_NAMES,
    MAX_NAMES_IN_NAMESPACE,
    PodInformers,
    component_pods,
)
from cfo.controllers.inferencestack.rendering.facts import OPTIONAL_KINDS
from cfo.runtime import (
    DEPLOYMENT,
    GVK,
    INGRESS,
    SERVICE,
    Informer,
    NamespacedName,
    Object,
)
from cfo.runtime.objects import new_object
from test.support.decisions import list_objects, offline_manager
from test.support.inference_stacks import stack

STACK = stack(name="s")
STACKS = GVK("doublewordai.co", "v1alpha1", "InferenceStack")
KEY = NamespacedName("ns", "s")


def controlled(gvk: GVK, name: str, owner: Object, namespace: str = "ns") -> Object:
    """Return an object of a stack as stored."""
    obj = new_object(gvk, name, namespace, labels={MANAGED_BY_LABEL: MANAGED_BY})
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    obj["metadata"] |= {"uid": f"{name}-uid", "ownerReferences": [reference]}
    return obj


def test_objects_of_a_stack_are_found_by_its_uid_and_namespace() -> None:
    informers = StackInformers(offline_manager())
    own = controlled(DEPLOYMENT, "own", STACK)
    of_another_stack = controlled(DEPLOYMENT, "other", stack(name="t"))
    imitation = controlled(DEPLOYMENT, "imitation", STACK, namespace="elsewhere")
    list_objects(informers._informers[DEPLOYMENT], [own, of_another_stack, imitation])
    list_objects(informers._informers[SERVICE], [controlled(SERVICE, "service", STACK)])
    found = {(gvk.kind, entry.name) for gvk, entry in informers.of(STACK)}
    assert found == {("Deployment", "own"), ("Service", "service")}
    stored = informers.get(own)
    assert stored is not None
    assert stored.meta.uid == "own-uid"
    assert informers.entry(GVK("", "v1", "Unknown"), KEY) is None


def test_objects_of_a_kind_that_is_not_served_any_more_are_not_listed() -> None:
    manager = offline_manager()
    informers = StackInformers(manager)
    optional = min(OPTIONAL_KINDS)
    assert informers.served == frozenset()
    informers._set_served(optional, manager)
    list_objects(informers._informers[optional], [controlled(optional, "own", STACK)])
    assert [gvk for gvk, _ in informers.of(STACK)] == [optional]
    informers.set_unserved(optional)
    assert informers.served == frozenset()
    assert list(informers.of(STACK)) == []
    informers._set_served(optional, manager)
    assert informers.served == {optional}


def ingress(name: str, *hosts: str, namespace: str = "ns") -> Object:
    return new_object(INGRESS, name, namespace, spec={"rules": [{"host": host} for host in hosts]})


def hosts_of(*existing: Object) -> StackHosts:
    """Return the hosts of a cluster that does not serve routes of a Gateway."""
    manager = offline_manager()
    hosts = StackHosts(manager, frozenset)
    (informer,) = hosts._informers()
    list_objects(informer, existing)
    return hosts


@pytest.mark.parametrize(
    ("existing", "refusal"),
    [
        ([], ""),
        ([ingress("other", "another.test", namespace="other")], ""),
        (
            [ingress("other", "a.test", namespace="other")],
            "host a.test is used by Ingress other/other",
        ),
        ([ingress("same-namespace", "a.test")], ""),
        (
            [ingress("own", "a.test"), ingress("other", "a.test", namespace="other")],
            "",
        ),
    ],
    ids=[
        "free",
        "another host",
        "of another namespace",
        "shared in a namespace",
        "an own host is kept",
    ],
)
async def test_host_is_not_taken_from_another_namespace(
    existing: list[Object], refusal: str
) -> None:
    conflict = await hosts_of(*existing).conflict(ingress("own", "a.test"), stack())
    assert refusal in conflict
    assert bool(conflict) is bool(refusal)


async def test_object_without_hosts_has_no_conflict() -> None:
    assert await hosts_of().conflict(ingress("own"), stack()) == ""


def pod(
    name: str, created: str, *, component: str = "a", stack_name: str = "s", **fields: Any
) -> Object:
    labels = {NAME_LABEL: CHART_NAME, INSTANCE_LABEL: stack_name, COMPONENT_LABEL: component}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "creationTimestamp": created}
    metadata |= fields.pop("metadata", {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **fields}


def waiting(message: str) -> Object:
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    return {"containerStatuses": [{"name": "main", "restartCount": 0, "state": state}]}


EARLIER = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ([pod("a", EARLIER, status=waiting("old")), pod("b", LATER, status=waiting("new"))], "new"),
        ([pod("a", EARLIER, status=waiting("old")), pod("b", LATER, status={})], "old"),
        ([pod("a", EARLIER, status=waiting("of b"), component="b")], None),
        ([pod("a", EARLIER, status=waiting("of t"), stack_name="t")], None),
        (
            [pod("a", EARLIER, status=waiting("ends"), metadata={"deletionTimestamp": LATER})],
            None,
        ),
        ([], None),
    ],
    ids=[
        "of the newest pod",
        "of an older pod if the newest one runs",
        "not of another component",
        "not of another stack",
        "not of a pod that is being deleted",
        "none without pods",
    ],
)
async def test_failure_of_a_component_is_that_of_its_newest_pod_that_has_one(
    pods: list[Object], message: str | None
) -> None:
    informers = PodInformers(offline_manager())
    list_objects(informers._chart, pods)
    reader = await informers.reader(STACKS, STACK)
    assert reader is not None
    failure = component_pods(reader, KEY, "a").failure
    if message is None:
        assert failure is None
    else:
        assert failure is not None
        assert message in failure.message


def named_stack(number: int, namespace: str) -> Object:
    """Return a stack with a name of its own for its pods."""
    found = stack(name=f"s{number}", nameOverride=f"name-{number}")
    found["metadata"]["namespace"] = namespace
    return found


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> PodInformers:
    """The pods of stacks; each informer has listed its pods as soon as it is created."""
    manager = offline_manager()
    create = manager.cache.informer

    def listed(*args: Any, **options: Any) -> Informer:
        informer = create(*args, **options)
        list_objects(informer)
        return informer

    monkeypatch.setattr(manager.cache, "informer", listed)
    return PodInformers(manager)


async def test_pods_with_another_name_are_cached_while_a_stack_uses_it(pods: PodInformers) -> None:
    first = await pods.reader(STACKS, named_stack(1, "ns"))
    assert first is not None
    again = await pods.reader(STACKS, named_stack(1, "ns"))
    assert again is first
    usual = stack(name="s1")
    assert await pods.reader(STACKS, usual) is pods._chart.reader
    assert pods._named == {}


async def test_pods_are_cached_until_the_last_stack_with_their_name_is_released(
    pods: PodInformers,
) -> None:
    for namespace in ("a", "b"):
        await pods.reader(STACKS, named_stack(1, namespace))
    pods.release(STACKS, NamespacedName("a", "s1"))
    assert list(pods._named) == ["name-1"]
    pods.release(STACKS, NamespacedName("b", "s1"))
    assert pods._named == {}
    pods.release(STACKS, NamespacedName("b", "s1"))


async def test_tenant_can_use_few_names_and_all_tenants_together_a_limited_number(
    pods: PodInformers,
) -> None:
    for number in range(MAX_NAMES_IN_NAMESPACE):
        assert await pods.reader(STACKS, named_stack(number, "greedy")) is not None
    assert await pods.reader(STACKS, named_stack(99, "greedy")) is None
    for number in range(MAX_NAMES_IN_NAMESPACE, MAX_NAMES):
        assert await pods.reader(STACKS, named_stack(number, f"tenant-{number}")) is not None
    assert await pods.reader(STACKS, named_stack(99, "modest")) is None


@pytest.mark.parametrize(
    ("version", "live", "reason"),
    [
        ("v2", {"v2": ["a"]}, ""),
        ("v2", {"v1": ["a"]}, "Unclaimed"),
        ("v2", {}, "Unclaimed"),
        ("", {"v2": ["a"]}, "Unclaimed"),
        ("v2", {"v2": ["a", "b"]}, "ClaimedTwice"),
    ],
    ids=["one operator", "another version", "no operator", "no label", "two operators"],
)
def test_stack_is_reported_unless_one_operator_reconciles_its_version(
    version: str, live: dict[str, list[str]], reason: str
) -> None:
    problem = _problem(version, live)
    assert (problem.reason if problem is not None else "") == reason


def test_condition_stays_the_same_when_other_versions_start() -> None:
    before = _problem("v2", {"v1": ["a"]})
    after = _problem("v2", {"v1": ["a"], "v3": ["b"]})
    assert before is not None
    assert after is not None
    assert before.message == after.message
    assert "v1, v3" in after.note


@pytest.mark.parametrize(
    ("live", "reporter"),
    [
        ({}, None),
        ({"v2": ["a", "b"]}, ("v2", "a")),
        ({"v2": ["a"], "v10": ["b"]}, ("v10", "b")),
    ],
    ids=["none", "the first namespace", "the newest version"],
)
def test_one_operator_reports(live: dict[str, list[str]], reporter: tuple[str, str] | None) -> None:
    assert _reporter(live) == reporter
