"""Why pods of a component are missing: what its status says, or the API server about a dry run."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest
from msgspec import structs

from cfo.api.raycluster.names import names_of
from cfo.controllers.appwrapper.decision import WrapperObservation
from cfo.controllers.appwrapper.refused_pods import RefusedPods
from cfo.controllers.pod_status import PodFailure
from cfo.runtime.client.errors import APIError, BadRequest, Forbidden
from cfo.runtime.objects.unstructured import Object, key_of
from cfo.runtime.process import UnreadableObject
from test.support.observations import UID, observe, seconds_later, wrapper

EXCEEDED = 'pods "job-0-x" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0'
NO_PERMISSION = 'pods is forbidden: User "cfo" cannot create resource "pods" in API group ""'


class RefusingClient:
    """A client of an API server that has one Job, and answers each creation of a pod with ``answer``."""

    def __init__(self, answer: APIError | None = None, **job: Any) -> None:
        self.answer = answer
        owner = {"apiVersion": "v1", "kind": "AppWrapper", "name": "w", "uid": UID}
        spec = {"containers": [{"name": "main", "image": "busybox"}]}
        metadata = {
            "name": "job-0",
            "namespace": "ns",
            "uid": "c-0",
            "ownerReferences": [{**owner, "controller": True}],
        }
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        self.job: Object = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"template": template},
            **job,
        }
        self.pods: list[Object] = []
        self.requests = 0

    async def get(self, _gvk: object, _key: object, *, live: bool) -> Object:
        assert live
        self.requests += 1
        return self.job

    async def create(self, pod: Object, *, dry_run: bool) -> Object:
        assert dry_run, "no pod must be stored"
        self.requests += 1
        self.pods.append(pod)
        if self.answer is not None:
            raise self.answer
        return pod


def refused(client: RefusingClient) -> RefusedPods:
    return RefusedPods(cast("Any", client))


def observation_at(seconds: float, uid: str = UID) -> WrapperObservation:
    """Return an AppWrapper with a Job whose deployment began at a time."""
    began = seconds_later(seconds).isoformat()
    deployed = {"type": "ResourcesDeployed", "status": "True", "lastTransitionTime": began}
    pod_sets = [{"path": "template.spec.template", "replicas": 1}]
    component = {"kind": "Job", "name": "job-0", "podSets": pod_sets}
    status = {"phase": "Running", "conditions": [deployed], "componentStatus": [component]}
    obj = wrapper("Job", status=status)
    obj["metadata"]["uid"] = uid
    return observe(obj)


async def failure(client: RefusingClient) -> PodFailure | None:
    observation = observation_at(0)
    return await refused(client).failure_of(observation, observation.components[0])


async def test_refusal_of_a_dry_run_is_the_reason() -> None:
    client = RefusingClient(Forbidden(403, {"message": EXCEEDED}))
    assert await failure(client) == PodFailure("FailedCreate", f"Job job-0: {EXCEEDED}")
    (pod,) = client.pods
    assert pod["metadata"]["generateName"] == "job-0-"
    assert pod["metadata"]["labels"] == {"a": "b"}
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "c-0", (
        "policies refuse pods without owner"
    )
    assert pod["spec"] == client.job["spec"]["template"]["spec"]


async def test_status_of_the_object_saves_the_dry_run() -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "message": EXCEEDED}
    client = RefusingClient(status={"conditions": [condition]})
    assert await failure(client) == PodFailure("FailedCreate", f"Job job-0: {EXCEEDED}")
    assert client.requests == 1


async def test_suspended_component_is_the_reason_until_it_is_resumed() -> None:
    client = RefusingClient(Forbidden(403, {"message": EXCEEDED}))
    client.job["spec"]["suspend"] = True
    pods = refused(client)
    component = observation_at(0).components[0]
    found = await pods.failure_of(observation_at(0), component)
    assert found is not None
    assert found.reason == "ComponentSuspended"
    assert found.message == (
        "Job job-0 is suspended (spec.suspend): resume it, or suspend the AppWrapper instead"
    )
    assert client.pods == []
    client.job["spec"]["suspend"] = False
    assert await pods.failure_of(observation_at(0), component) == found
    assert client.requests == 1
    later = structs.replace(observation_at(0), monotonic=10)
    refusal = await pods.failure_of(later, component)
    assert refusal == PodFailure("FailedCreate", f"Job job-0: {EXCEEDED}")


async def test_component_is_asked_about_again_after_its_pods_were_ready() -> None:
    client = RefusingClient()
    pods = refused(client)
    observation = observation_at(0)
    component = observation.components[0]
    assert await pods.failure_of(observation, component) is None
    client.job["spec"]["suspend"] = True
    assert await pods.failure_of(observation, component) is None
    unready = seconds_later(100).isoformat()
    condition = {"type": "PodsReady", "status": "False", "lastTransitionTime": unready}
    observation.wrapper["status"]["conditions"].append(condition)
    found = await pods.failure_of(observation, component)
    assert found is not None
    assert found.reason == "ComponentSuspended"


async def test_service_account_that_the_operator_creates_is_no_reason() -> None:
    account = names_of(RefusingClient().job).proxy_service_account
    missing = f'error looking up service account ns/{account}: serviceaccount "{account}" not found'
    message = f'pods "job-0-" is forbidden: {missing}'
    assert await failure(RefusingClient(Forbidden(403, {"message": message}))) is None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Forbidden(403, {"message": NO_PERMISSION}),
        BadRequest(400, {"message": 'admission webhook "x" does not support dry run'}),
        APIError(500),
    ],
)
async def test_other_answers_are_no_reason(answer: APIError | None) -> None:
    client = RefusingClient(answer)
    assert await failure(client) is None
    assert client.requests == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {}},
        {"spec": None, "status": {"conditions": ["x", {"type": 3}]}},
        {"status": 7, "spec": {"template": {"spec": 1}}},
        {"metadata": {"name": "job-0", "namespace": "ns", "uid": "another"}},
    ],
)
async def test_object_that_another_client_changed_is_no_reason(changes: dict[str, Any]) -> None:
    client = RefusingClient(Forbidden(403, {"message": EXCEEDED}), **changes)
    assert await failure(client) is None
    assert client.pods == []


async def test_each_attempt_is_asked_about_once() -> None:
    client = RefusingClient(Forbidden(403, {"message": EXCEEDED}))
    pods = refused(client)
    for attempt in (observation_at(0), observation_at(100), observation_at(100, "another")):
        client.job["metadata"]["ownerReferences"][0]["uid"] = attempt.wrapper["metadata"]["uid"]
        before = client.requests
        answers = [await pods.failure_of(attempt, attempt.components[0]) for _ in range(3)]
        assert answers[0] is not None
        assert answers == [answers[0]] * 3
        assert client.requests == before + 2
    pods.forget(key_of(attempt.wrapper))
    await pods.failure_of(attempt, attempt.components[0])
    assert client.requests == before + 4


async def test_long_refusal_is_shortened() -> None:
    found = await failure(RefusingClient(Forbidden(403, {"message": "x" * 100_000})))
    assert found is not None
    assert len(found.message) <= 800


async def test_all_fields_of_a_pod_security_violation_are_named() -> None:
    containers = 'containers "trainer", "metrics-sidecar"'
    violation = (
        'pods "job-0-x7k2p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
        f"({containers} must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities "
        f'({containers} must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or {containers} '
        f"must set securityContext.runAsNonRoot=true), seccompProfile (pod or {containers} must set "
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
    found = await failure(RefusingClient(Forbidden(403, {"message": violation})))
    assert found == PodFailure("FailedCreate", f"Job job-0: {violation}")


async def test_object_that_cannot_be_read_delays_no_decision() -> None:
    client = RefusingClient()
    for error in (UnreadableObject("depth limit exceeded"), KeyError("spec")):
        with mock.patch.object(client, "get", side_effect=error):
            assert await failure(client) is None
