"""Transforms objects into responses: objects, lists, Tables and PartialObjectMetadata, in JSON, YAML or protobuf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from envtest.apimachinery.errors import StatusError, bad_request, not_acceptable, plain_error
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object
from envtest.endpoints.listing import Page
from envtest.endpoints.negotiation import PROTOBUF, Output, negotiate
from envtest.endpoints.partial_metadata import partial_metadata
from envtest.endpoints.request import Request, Response, status_response
from envtest.registry.resource import ResourceInfo
from envtest.registry.storage_version import encode_internal, encode_records
from envtest.storage.record import encode

__all__ = [
    "check_include",
    "encode_as",
    "encoded_list",
    "error_response",
    "list_response",
    "makes_internal",
    "object_response",
    "partial_metadata",
]


_INCLUDE = ("Metadata", "Object", "None", "")


def encode_as(document: Any, output: Output) -> bytes:
    """Encode a document in the negotiated encoding."""
    if output.protobuf:
        from envtest.endpoints.protobuf_encoder import encode_body

        return encode_body(document)
    if output.yaml:
        from envtest.formats.yaml_codec import dump

        return dump(document).encode()
    if output.pretty:
        return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
    return orjson.dumps(document) + b"\n"


def error_response(request: Request, error: StatusError) -> Response:
    """Return the response that reports ``error``, in JSON unless the client only accepts YAML or protobuf."""
    accept = request.headers.get("Accept", "")
    if PROTOBUF in accept or "application/yaml" in accept:
        # the error is more important than that its form is not acceptable
        with suppress(StatusError):
            output = negotiate(accept, is_crd=False, kinds=frozenset())
            return Response(
                encode_as(error.status(), output),
                error.code,
                output.content_type,
                dict(error.headers),
            )
    return status_response(error)


def _table(
    request: Request,
    info: ResourceInfo,
    output: Output,
    objects: Sequence[Object],
    metadata: Mapping[str, Any],
) -> Object:
    # Imports the printers of all kinds, which most programs never need.
    from envtest.endpoints.table_convertor import convert_to_table

    return convert_to_table(
        info,
        objects,
        version=output.as_version,
        include=check_include(request),
        metadata=metadata,
        now=request.moment,
    )


def check_include(request: Request) -> str:
    """Return ``includeObject`` of a Table request. Raises StatusError (400)."""
    include = request.parameter("includeObject")
    if include not in _INCLUDE:
        raise bad_request(
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{go_quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
        )
    return include or "Metadata"


def object_response(
    request: Request, info: ResourceInfo, output: Output, obj: Object | bytes, code: int = 200
) -> Response:
    """Return one object in the form that the client accepts."""
    if not output.as_kind:
        if isinstance(obj, bytes) and output.is_stored_form:
            return Response(obj + b"\n", code)
        document = orjson.loads(obj) if isinstance(obj, bytes) else obj
        return Response(encode_as(document, output), code, output.content_type)
    document = orjson.loads(obj) if isinstance(obj, bytes) else obj
    if output.as_kind == "PartialObjectMetadataList":
        if info.is_crd:  # its Go type has the methods of a list
            raise plain_error("content is not a list")
        name = f"*{info.go_package}.{info.kind}"
        raise not_acceptable(
            f"you requested PartialObjectMetadataList, but the requested object is not a list ({name})"
        )
    if output.as_kind == "PartialObjectMetadata":
        return Response(
            encode_as(partial_metadata(document, output.as_version), output),
            code,
            output.content_type,
        )
    metadata = {"resourceVersion": document["metadata"].get("resourceVersion", "")}
    table = _table(request, info, output, [document], metadata)
    return Response(encode_as(table, output), code, output.content_type)


def _list_metadata(info: ResourceInfo, page: Page) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token or info.is_crd:
        metadata["continue"] = page.token
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    if page.shards:
        metadata["shardInfo"] = {"selector": page.shards}
    return metadata


async def list_response(
    request: Request, info: ResourceInfo, output: Output, page: Page
) -> Response:
    """Return a list in the form that the client accepts, assembled from the stored bytes whenever possible."""
    encode_items = encode_internal if makes_internal(request, output) else encode_records
    items = await encode_items(info, page.records)
    return encoded_list(request, info, output, items, _list_metadata(info, page))


def makes_internal(request: Request, output: Output) -> bool:
    """Return whether a response contains no whole objects, and is therefore made of kube-apiserver's internal type."""
    return bool(output.as_kind) and request.parameter("includeObject") != "Object"


def encoded_list(
    request: Request,
    info: ResourceInfo,
    output: Output,
    items: Sequence[bytes],
    metadata: dict[str, Any],
) -> Response:
    """Return a list of encoded objects with ``metadata`` in the form that the client accepts."""
    if output.as_kind:
        return _converted_list(request, info, output, items, metadata)
    head = orjson.dumps(
        {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": metadata}
    )
    pieces: list[bytes | memoryview] = [head[:-1] + b',"items":[']
    if info.is_crd:
        for item in items:
            pieces += (item, b",")
    else:
        head = encode({"apiVersion": info.api_version, "kind": info.kind, "": 0}).removesuffix(
            b'"":0}'
        )
        for item in items:
            pieces += _bare_item(item, head)
    if items:
        pieces.pop()
    pieces.append(b"]}\n")
    if not output.is_stored_form:
        return Response(encode_as(orjson.loads(b"".join(pieces)), output), 200, output.content_type)
    return Response(pieces)


def _bare_item(item: bytes, head: bytes) -> tuple[bytes | memoryview, ...]:
    """Return the pieces of an item without its apiVersion and kind, with which ``head`` begins, and a comma."""
    if item.startswith(head):
        return b"{", memoryview(item)[len(head) :], b","
    obj = orjson.loads(item)
    del obj["apiVersion"]
    del obj["kind"]
    return orjson.dumps(obj), b","


def _converted_list(
    request: Request,
    info: ResourceInfo,
    output: Output,
    items: Sequence[bytes],
    metadata: dict[str, Any],
) -> Response:
    objects = [orjson.loads(item) for item in items]
    if not metadata.get("continue"):
        metadata.pop("continue", None)
    if output.as_kind == "PartialObjectMetadata":
        name = (
            f"*{info.go_package}.{info.list_kind}"
            if not info.is_crd
            else "*unstructured.UnstructuredList"
        )
        raise not_acceptable(
            f"you requested PartialObjectMetadata, but the requested object is a list ({name})"
        )
    if output.as_kind == "PartialObjectMetadataList":
        document: dict[str, Any] = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": f"meta.k8s.io/{output.as_version}",
            "metadata": metadata,
            "items": [partial_metadata(obj, output.as_version) for obj in objects] or None,
        }
    else:
        if info.plural == "flowschemas" and not info.is_crd:
            objects.sort(key=_precedence)  # the printer of kube-apiserver sorts them
        document = _table(request, info, output, objects, metadata)
    return Response(encode_as(document, output), 200, output.content_type)


def _precedence(flow_schema: Object) -> tuple[int, str]:
    precedence = flow_schema["spec"].get("matchingPrecedence") or 0
    return precedence, flow_schema["metadata"]["name"]
