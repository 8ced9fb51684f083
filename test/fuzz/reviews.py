"""Send objects through a webhook as an API server does, without HTTP, and check what holds for every response."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from typing import Any, Final

import jsonpatch
import orjson

from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.webhook.admission import Handler, denied
from cfo.runtime.webhook.review import BadReview, RefusedObject, read_review, write_review
from cfo.runtime.webhook.review_handlers import respond
from test.fuzz.bounds import assert_readable, limited_time

__all__ = ["Reviewer", "encoded", "review_of"]

MAX_ANSWER: Final = 8 << 20


def review_of(obj: Any, old: Any = None, *, namespace: str = "ns") -> Object:
    """Return the AdmissionReview for creating ``obj``, or for the update from ``old``."""
    request = {
        "uid": "u",
        "operation": "CREATE" if old is None else "UPDATE",
        "kind": {"group": "g", "version": "v1", "kind": "K"},
        "namespace": namespace,
        "name": "x",
        "userInfo": {"username": "tenant", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def encoded(value: Any) -> bytes:
    """Encode ``value`` as any client can: also what this operator's encoder refuses, such as lone surrogates."""
    return json.dumps(value).encode()


def canonical(value: Any) -> bytes:
    """Encode ``value`` for comparison: 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True).encode()


class Reviewer:
    """Calls the handlers of one kind's webhooks."""

    def __init__(self, defaulting: Handler | None, validating: Handler) -> None:
        self.defaulting = defaulting
        self.validating = validating
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def admit(self, obj: Any, old: Any = None) -> Object | None:
        """Default and validate ``obj``; return what would be stored, or ``None`` if a webhook denies it."""
        defaulted = obj
        if self.defaulting is not None:
            response = self.respond(self.defaulting, encoded(review_of(obj, old)))
            if response is None or not response["allowed"]:
                return None
            defaulted = _patched(orjson.loads(encoded(obj)), response)
            again = self.respond(self.defaulting, encoded(review_of(defaulted, old)))
            assert again is not None, "the defaulted object cannot be read"
            assert "patch" not in again, "defaulting is not idempotent"
        verdict = self.respond(self.validating, encoded(review_of(defaulted, old)))
        if verdict is None:
            assert self.defaulting is None, "the defaulted object cannot be read"
            return None
        assert "patch" not in verdict
        assert_readable(verdict.get("warnings") or (), MAX_ANSWER)
        return defaulted if verdict["allowed"] else None

    def respond(self, handler: Handler, body: bytes) -> Any:
        """Return the response to ``body``, which must be the same each time; ``None`` if the body cannot be decoded."""
        answers = [self._answer(handler, body) for _ in range(2)]
        assert answers[0] == answers[1], "the same input got different answers"
        if answers[0] is None:
            return None
        assert len(answers[0]) <= MAX_ANSWER
        response = orjson.loads(answers[0])["response"]
        if not response["allowed"]:
            _check_denial(response["status"])
        return response

    def _answer(self, handler: Handler, body: bytes) -> bytes | None:
        with limited_time():
            try:
                request = read_review(body)
            except BadReview:
                return None
            except RefusedObject as error:
                return write_review(error.uid, denied(str(error)))
            response, failed = self._runner.run(respond(handler, request, LoggedStacks()))
            assert not failed, response.message
            return write_review(request.uid, response)


def _check_denial(status: Object) -> None:
    assert 400 <= status["code"] < 500
    assert status["message"]
    assert_readable([status["message"]], MAX_ANSWER)
    if (
        status["code"] == 400
    ):  # not a review that an API server sends, such as one without an object
        return
    if (
        "nested too deeply" in status["message"]
    ):  # the message starts with the path, if the object can be decoded
        return
    for cause in status["details"]["causes"]:
        assert cause["field"], cause
        assert cause["message"]
        assert_readable([cause["field"], cause["message"]], MAX_ANSWER)


def _patched(obj: Object, response: Object) -> Object:
    if "patch" not in response:
        return obj
    patched: Object = jsonpatch.apply_patch(obj, orjson.loads(b64decode(response["patch"])))
    return patched
