"""The Events of controllers, correlated as client-go's recorder does."""

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.controllers.events import EventRecorder
from envtest.controllers.loopback_client import LoopbackClient
from test.support.headless_plane import HeadlessPlane, headless_plane

EVENTS = GroupResource("", "events")


def recorder(plane: HeadlessPlane) -> EventRecorder:
    return EventRecorder(LoopbackClient(plane.core, "job-controller"), "job-controller")


def stored(plane: HeadlessPlane, namespace: str = "default") -> list[Object]:
    return [record.obj() for record in plane.core.store.list(EVENTS, namespace)]


SUBJECT: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


async def test_repeated_event_increases_the_count() -> None:
    async with headless_plane() as plane:
        events = recorder(plane)
        await events.normal(SUBJECT, "SuccessfulCreate", "Created pod: j-a")
        await plane.core.clock.advance(60)
        await events.normal(SUBJECT, "SuccessfulCreate", "Created pod: j-a")
        (event,) = stored(plane)
        assert event["count"] == 2
        assert event["firstTimestamp"] < event["lastTimestamp"]
        assert event["involvedObject"] == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "default",
            "name": "j",
            "uid": "u",
            "resourceVersion": "7",
        }
        assert event["source"] == {"component": "job-controller"}
        assert event["reportingComponent"] == "job-controller"
        assert event["metadata"]["name"].startswith("j.")


async def test_deleted_event_is_created_again() -> None:
    async with headless_plane() as plane:
        events = recorder(plane)
        await events.warning(SUBJECT, "FailedCreate", "no")
        await plane.delete(stored(plane)[0], resource=EVENTS)
        await events.warning(SUBJECT, "FailedCreate", "no")
        (event,) = stored(plane)
        assert (event["count"], event["type"]) == (1, "Warning")


async def test_tenth_similar_event_is_combined() -> None:
    async with headless_plane() as plane:
        events = recorder(plane)
        for number in range(12):
            await events.normal(SUBJECT, "SuccessfulCreate", f"Created pod: j-{number}")
        combined = [
            event
            for event in stored(plane)
            if event["message"].startswith("(combined from similar events): ")
        ]
        assert len(stored(plane)) == 10
        assert [event["count"] for event in combined] == [3]


async def test_events_of_one_object_are_limited() -> None:
    async with headless_plane() as plane:
        events = recorder(plane)
        for number in range(40):
            await events.normal(SUBJECT, f"Reason{number}", "m")
        assert len(stored(plane)) == 25
        await plane.core.clock.advance(301)
        await events.normal(SUBJECT, "Later", "m")
        assert len(stored(plane)) == 26


async def test_event_of_a_cluster_scoped_object_is_in_the_default_namespace() -> None:
    async with headless_plane() as plane:
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
        await recorder(plane).normal(node, "RegisteredNode", "m")
        (event,) = stored(plane)
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "n",
            "uid": "u",
        }


async def test_rejected_event_is_dropped() -> None:
    async with headless_plane() as plane:
        missing: Object = {**SUBJECT, "metadata": {"name": "j", "namespace": "missing", "uid": "u"}}
        await recorder(plane).normal(missing, "SuccessfulCreate", "m")
        assert stored(plane, "missing") == []


async def test_component_is_the_service_account_by_default() -> None:
    class Named(Controller[str]):
        account = "named-controller"

        def observe(self, resource: object, change: object) -> None: ...
        def enqueue_all(self) -> None: ...
        async def reconcile(self, key: str) -> None: ...

    async with headless_plane() as plane:
        await Named(plane.core).events.normal(SUBJECT, "SuccessfulCreate", "m")
        assert stored(plane)[0]["source"] == {"component": "named-controller"}
