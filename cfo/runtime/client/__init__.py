"""The client of the API server: configuration, transport, verbs, errors and server-side apply.

.. code-block:: python

    config = await load_config()
    async with Transport(config) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="example")
        pod = await client.get(GVK("", "v1", "Pod"), NamespacedName("default", "web"))
"""

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.apply import ApplyIntent, is_applied
from cfo.runtime.client.client import Client, PatchType, Propagation
from cfo.runtime.client.config import ClientConfig, ConfigError, load_config
from cfo.runtime.client.credentials import CredentialError, Credentials, CredentialSource
from cfo.runtime.client.errors import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotSupported,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    RequestTimeout,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
    Unauthorized,
    UnknownKind,
    UnsupportedMediaType,
)
from cfo.runtime.client.object_cache import ClientCache, StoredObject
from cfo.runtime.client.transport import Exchange, Response, Transport

__all__ = [
    "APIError",
    "APIRequest",
    "AlreadyExists",
    "ApplyIntent",
    "BadRequest",
    "Client",
    "ClientCache",
    "ClientConfig",
    "ConfigError",
    "Conflict",
    "CredentialError",
    "CredentialSource",
    "Credentials",
    "Exchange",
    "Expired",
    "Forbidden",
    "InternalError",
    "Invalid",
    "MethodNotSupported",
    "NotAcceptable",
    "NotFound",
    "PatchType",
    "Propagation",
    "RequestEntityTooLarge",
    "RequestTimeout",
    "Response",
    "ServerTimeout",
    "ServiceUnavailable",
    "StoredObject",
    "TooManyRequests",
    "Transport",
    "TransportError",
    "Unauthorized",
    "UnknownKind",
    "UnsupportedMediaType",
    "is_applied",
    "load_config",
]
