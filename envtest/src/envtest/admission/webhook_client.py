"""An HTTPS client for webhooks, called by URL or by a Service that is registered for a local endpoint.

The embedded API server runs nothing behind its Services, so a program that serves webhooks in this process or on this
machine registers its Service with :meth:`ServiceEndpoints.register`, or a scenario names it as the port of a pod that
is an endpoint of the Service. A Service of type ExternalName resolves to that host, at the port in the configuration,
as in kube-apiserver. Error messages equal client-go's.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.objects import Object
from envtest.storage import Store

if TYPE_CHECKING:
    import aiohttp

__all__ = ["CallFailed", "ServiceEndpoints", "WebhookClient", "address_text", "read_bounded"]

_MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
_MAX_REDIRECTS: Final = 10
"""As in Go's HTTP client, which repeats a redirected POST for 307 and 308, and sends a GET for 301 and 302."""
_MAX_RETRIES: Final = 10
"""The maximum of further attempts after responses with ``Retry-After``, as in client-go."""
_WHOLE_SECONDS: Final = re.compile(r"[+-]?[0-9]{1,9}")
_SERVICES: Final = GroupResource("", "services")
_PODS: Final = GroupResource("", "pods")
_SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
_MESSAGES: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    415: "the server was unable to respond with a content type that the client supports",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallFailed(Exception):
    """Raised if the webhook cannot be called or does not respond with code 200; the message contains the reason."""


def _is_base_url(url: str) -> bool:
    """Report whether ``url`` is the address of an HTTPS server, without a path."""
    try:
        address = urlsplit(url)
        port = address.port
    except ValueError:  # a port that is not a number, or out of range
        return False
    has_only_address = address.netloc == url.removeprefix("https://").rstrip("/")
    return (
        address.scheme == "https"
        and bool(address.hostname)
        and port != 0
        and has_only_address
        and "@" not in url
    )


class ServiceEndpoints:
    """Local base URLs for the Services that webhook configurations name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._urls: dict[tuple[str, str, int], str] = {}
        self.ports_of: Callable[[Object], Mapping[int, tuple[str, int]]] = lambda _: {}
        """Returns the local host and port of each port of a pod; set by the plane that has a scenario."""

    def fork(self, store: Store) -> ServiceEndpoints:
        """Return the same registrations for a copy of the store."""
        copy = ServiceEndpoints(store)
        copy._urls = dict(self._urls)
        return copy

    def register(self, namespace: str, name: str, url: str, *, port: int = 443) -> None:
        """Route calls of a service's port to ``url`` (``https://127.0.0.1:9443``).

        The server's certificate must be valid for ``<name>.<namespace>.svc``. Raises ValueError for a URL of another
        form, or with a path: that is in the webhook configuration.
        """
        if not _is_base_url(url):
            raise ValueError(f"url: {url!r}: must be https://HOST:PORT")
        self._urls[namespace, name, port] = url.rstrip("/")

    def unregister(self, namespace: str, name: str, *, port: int = 443) -> None:
        """Remove a registration; does nothing when there is none."""
        self._urls.pop((namespace, name, port), None)

    def resolve(self, namespace: str, name: str, port: int) -> str:
        """Return the base URL of a service. Raises CallFailed."""
        url = self._urls.get((namespace, name, port))
        if url is not None:
            return url
        service = self._store.get(_SERVICES, namespace, name)
        if service is None:
            raise CallFailed(f"service {go_quote(name)} not found")
        spec = service.obj().get("spec") or {}
        if spec.get("type") == "ExternalName":
            return f"https://{spec['externalName']}:{port}"
        port_names = {
            each.get("name") or "" for each in spec.get("ports") or () if each["port"] == port
        }
        for address in self.addresses(namespace, name, port_names):
            return f"https://{address}"
        raise CallFailed(f"no endpoints available for service {go_quote(name)}")

    def addresses(self, namespace: str, service: str, port_names: Collection[str]) -> Iterator[str]:
        """Yield the local addresses (``HOST:PORT``) behind ports of a Service: those of ready pods in its slices."""
        if not port_names:
            return
        for record in self._store.list(_SLICES, namespace):
            if (record.labels or {}).get("kubernetes.io/service-name") != service:
                continue
            endpoint_slice = record.obj()
            numbers = [
                each["port"]
                for each in endpoint_slice.get("ports") or ()
                if (each.get("name") or "") in port_names and each.get("port")
            ]
            for endpoint in endpoint_slice.get("endpoints") or ():
                pod = self._ready_pod(namespace, endpoint)
                if pod is None:
                    continue
                ports = self.ports_of(pod)
                yield from (address_text(*ports[number]) for number in numbers if number in ports)

    def _ready_pod(self, namespace: str, endpoint: Mapping[str, Any]) -> Object | None:
        target = endpoint.get("targetRef") or {}
        if target.get("kind") != "Pod" or (endpoint.get("conditions") or {}).get("ready") is False:
            return None
        record = self._store.get(_PODS, namespace, target.get("name") or "")
        return None if record is None else record.obj()


class WebhookClient:
    """A client with one keep-alive session for all servers that an API server calls; call :meth:`close` at the end."""

    def __init__(self, endpoints: ServiceEndpoints) -> None:
        self.endpoints = endpoints
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, config: Mapping[str, Any], body: bytes, *, seconds: int) -> bytes:
        """Post ``body`` to the ``clientConfig`` of a webhook and return the body of the response.

        A webhook that responds with 429 or 5xx and ``Retry-After`` is called again within ``seconds``, as client-go
        does. Raises CallFailed, also when there is no response within ``seconds``.
        """
        import aiohttp  # takes as long to import as all of envtest, and most tests call no webhook

        service = config.get("service")
        server_name: str | None = None
        if service is not None:
            namespace = service["namespace"]
            name = service["name"]
            port = service.get("port") or 443
            path = _clean_path(service.get("path") or "")
            server_name = f"{name}.{namespace}.svc"
            shown = f"https://{server_name}:{port}{path}"
            prefix = f"Post {go_quote(f'{shown}?timeout={seconds}s')}: "
            try:
                url = self.endpoints.resolve(namespace, name, port) + path
            except CallFailed as error:
                raise CallFailed(f"{prefix}{error}") from None
        else:
            url = _clean_url(config["url"])
            prefix = f"Post {go_quote(f'{url}?timeout={seconds}s')}: "
        try:
            async with asyncio.timeout(seconds):
                return await self._post(
                    url, server_name, config.get("caBundle") or "", body, seconds
                )
        except TimeoutError:
            raise CallFailed(f"{prefix}context deadline exceeded") from None
        except aiohttp.TooManyRedirects:
            raise CallFailed(f"{prefix}stopped after {_MAX_REDIRECTS} redirects") from None
        except aiohttp.ClientError as error:
            raise CallFailed(f"{prefix}{_describe(error, url)}") from error
        except (ssl.SSLError, ValueError) as error:
            raise CallFailed(f"unable to load root certificates: {error}") from error

    @asynccontextmanager
    async def relay(
        self,
        spec: Mapping[str, Any],
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to the Service of an APIService. Raises CallFailed, also while the response is read."""
        service = spec["service"]
        namespace = service["namespace"]
        name = service["name"]
        port = service.get("port") or 443
        url = self.endpoints.resolve(namespace, name, port) + target
        try:
            verified = (
                False
                if spec.get("insecureSkipTLSVerify")
                else self._context(spec.get("caBundle") or "")
            )
        except (ssl.SSLError, ValueError) as error:
            raise CallFailed(f"unable to load root certificates: {error}") from error
        server_name = f"{name}.{namespace}.svc"
        async with self.send(
            url, method, headers, body, verified=verified, server_name=server_name
        ) as response:
            yield response

    @asynccontextmanager
    async def send(
        self,
        url: str,
        method: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | None = None,
        *,
        verified: ssl.SSLContext | bool = False,
        server_name: str | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; ``verified`` is the context that verifies the certificate. Raises CallFailed, as above."""
        import aiohttp
        from multidict import CIMultiDict
        from yarl import URL

        request = self._open_session().request(
            method,
            URL(url, encoded=True),
            data=body,
            headers=CIMultiDict(headers),
            ssl=verified,
            server_hostname=server_name,
            allow_redirects=False,
            auto_decompress=False,  # the headers of the response describe the body as it was sent
        )
        try:
            async with request as response:
                yield response
        except aiohttp.ClientError as error:
            raise CallFailed(_describe(error, url)) from error

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),  # one user's cookies would be sent with the requests of others
                timeout=aiohttp.ClientTimeout(),
            )
        return self._session

    async def _post(
        self, url: str, server_name: str | None, ca_bundle: str, body: bytes, seconds: int
    ) -> bytes:
        send = partial(
            self._open_session().post,
            url,
            params={"timeout": f"{seconds}s"},
            data=body,
            headers={"Content-Type": "application/json", "Accept": "application/json, */*"},
            ssl=self._context(ca_bundle),
            server_hostname=server_name,
            max_redirects=_MAX_REDIRECTS,
        )
        for _ in range(_MAX_RETRIES):
            async with send() as response:
                pause = _seconds_to_wait(response)
                if pause is None:
                    return await _content(response)
            await asyncio.sleep(pause)
        async with send() as response:
            return await _content(response)

    def _context(self, ca_bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            data = b64decode(ca_bundle).decode() if ca_bundle else None
            context = ssl.create_default_context(cadata=data)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
            # As in Go, a certificate in the bundle is trusted itself, even if it is not a CA.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self._contexts[ca_bundle] = context
        return context


def _seconds_to_wait(response: aiohttp.ClientResponse) -> int | None:
    """Return after how many seconds the webhook wants to be called again; ``None`` if it does not."""
    if response.status != 429 and response.status < 500:
        return None
    seconds = response.headers.get("Retry-After", "")
    return int(seconds) if _WHOLE_SECONDS.fullmatch(seconds) else None


async def _content(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a successful response. Raises CallFailed for another one, and for an empty body."""
    content = await read_bounded(response)
    if not 200 <= response.status <= 206:
        message = ""
        if response.headers.get("Content-Type", "").startswith("text/"):
            message = content.decode(errors="replace").strip()
        raise CallFailed(_http_error(response.status, message))
    if not content:
        raise CallFailed(
            f"0-length response with status code: {response.status} and content type: "
            f"{response.headers.get('Content-Type', '')}"
        )
    return content


async def read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a response. Raises CallFailed if it is too long."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > _MAX_RESPONSE_BYTES:
            raise CallFailed(f"the response is longer than {_MAX_RESPONSE_BYTES} bytes")
    return bytes(content)


def address_text(host: str, port: int) -> str:
    """Return an address as it appears in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _clean_path(path: str) -> str:
    """Return a path as Go's ``path.Clean`` does, beginning with exactly one slash."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _clean_url(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=_clean_path(parts.path)))


def _http_error(code: int, text: str) -> str:
    """Return client-go's message for an HTTP error without a Status in its body."""
    if code == 403 or (code in (406, 415) and text):
        return text or "unknown"
    if code in _MESSAGES:
        return _MESSAGES[code]
    if code >= 500:
        return f"an error on the server ({go_quote(text or 'unknown')}) has prevented the request from succeeding"
    return f"the server responded with the status code {code} but did not return more information"


_UNKNOWN_ISSUER: Final = frozenset({18, 19, 20, 21})
_NOT_IN_TIME: Final = frozenset({9, 10})
"""OpenSSL's numbers of the reasons for which a certificate is not valid (``X509_V_ERR_...``)."""


def _certificate_problem(error: Exception) -> str:
    """Return why a certificate is not valid, in Go's words where they are known."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return str(error)
    if error.verify_code in _UNKNOWN_ISSUER:
        return "certificate signed by unknown authority"
    if error.verify_code in _NOT_IN_TIME:
        return "certificate has expired or is not yet valid"
    return error.verify_message.rstrip(".")


def _describe(error: aiohttp.ClientError, url: str) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: x509: {_certificate_problem(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError):
        parts = urlsplit(url)
        reason = (
            "connection refused"
            if isinstance(error.os_error, ConnectionRefusedError)
            else error.os_error
        )
        return f"dial tcp {parts.hostname}:{parts.port or 443}: connect: {reason}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__
