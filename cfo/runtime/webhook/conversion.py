"""ConversionReviews, which convert custom resources from one version of their CRD to another.

Source: `Webhook conversion`_ and controller-runtime's ``pkg/webhook/conversion``.

.. _Webhook conversion: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol

import msgspec
import orjson
import structlog

from cfo.runtime.objects.unstructured import Object, gvk_of, name_of, uid_of
from cfo.runtime.webhook.review import BadReview, check_nesting

_API_VERSION: Final = "apiextensions.k8s.io/v1"
_KIND: Final = "ConversionReview"

_log = structlog.get_logger(__name__)


class Converter(Protocol):
    """Converts the objects of one kind between all its versions."""

    def convert(self, obj: Object, api_version: str) -> Object | Awaitable[Object]:
        """Return ``obj`` in ``api_version`` (``group/version``); ``obj`` may be modified.

        Name, namespace, uid and the rest of the metadata, except labels and annotations, must not change. Raises
        :class:`ValueError` if ``obj`` cannot be converted; the API server returns the message to its client. Any other
        exception is reported in the same way, and logged and counted as a panic.
        """
        ...


class _Request(msgspec.Struct, rename={"desired": "desiredAPIVersion"}):
    uid: str
    desired: str
    objects: msgspec.Raw


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


_reviews = msgspec.json.Decoder(_Review)


async def convert(body: bytes, converters: Mapping[tuple[str, str], Converter]) -> tuple[bytes, bool]:
    """Return the encoded response to the review in ``body``, and whether a converter failed unexpectedly.

    ``converters`` are indexed by group and kind. Raises :class:`BadReview` if ``body`` is not a ConversionReview.
    """
    try:
        review = _reviews.decode(body)
        if (review.api_version, review.kind) != (_API_VERSION, _KIND) or review.request is None:
            raise BadReview(f"expected a {_KIND} of {_API_VERSION} with a request")
        objects = orjson.loads(memoryview(review.request.objects))
    except (msgspec.MsgspecError, orjson.JSONDecodeError) as error:
        raise BadReview(f"cannot decode the body: {error}") from None
    if not isinstance(objects, list) or not all(isinstance(obj, dict) for obj in objects):
        raise BadReview("request.objects must be a list of objects")
    converted: list[Object] = []
    result: dict[str, Any] = {"status": "Success"}
    failed = False
    for obj in objects:
        try:
            check_nesting(obj)
            converted.append(await _convert_object(obj, review.request.desired, converters))
        except Exception as error:  # noqa: BLE001 - an error in a converter must not stop the server
            gvk = gvk_of(obj)
            message = f"{gvk.kind} {name_of(obj)!r} to {review.request.desired}: {error or type(error).__name__}"
            failed = not isinstance(error, ValueError)
            _log.error("Failed to convert object", error=message, exc_info=error if failed else None)
            converted, result = [], {"status": "Failure", "message": message}
            break
    response = {"uid": review.request.uid, "convertedObjects": converted, "result": result}
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": response}), failed


async def _convert_object(obj: Object, desired: str, converters: Mapping[tuple[str, str], Converter]) -> Object:
    gvk = gvk_of(obj)
    if gvk.api_version == desired:
        return obj
    converter = converters.get((gvk.group, gvk.kind))
    if converter is None:
        raise ValueError("no converter is registered for this kind")
    name, uid = name_of(obj), uid_of(obj)
    waiting = converter.convert(obj, desired)
    result: Object = await waiting if inspect.isawaitable(waiting) else waiting
    if (gvk_of(result).api_version, result.get("kind")) != (desired, gvk.kind):
        raise TypeError(f"the converter returned {result.get('kind')} of {result.get('apiVersion')}")
    if (name_of(result), uid_of(result)) != (name, uid):
        raise TypeError("the converter changed the object's name or uid")
    return result
