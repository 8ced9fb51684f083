"""Shares the port of a webhook server with other replicas, and with nothing else.

With ``SO_REUSEPORT`` several processes of one user can listen on a port, and the kernel distributes the connections.
That is right for replicas of one operator on one machine. A process of another cluster or program that happens to use
the same port would take half of the connections, and API servers would not trust its certificate
("unable to get local issuer certificate"). Therefore a process that finds its port in use serves only if the
certificate of the other process is signed by a CA that its own API servers trust.

A webhook configuration contains one URL, so processes with different URLs cannot share it (:func:`served_elsewhere`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import anyio
import structlog

from cfo.runtime.objects.unstructured import Object
from cfo.runtime.pki.trust import client_context
from cfo.runtime.process.endpoint import parse_bind_address
from cfo.runtime.process.listener import AddressUnavailable
from cfo.runtime.webhook.certificates.client_configs import ca_bundles_of, client_configs
from cfo.runtime.webhook.options import ServiceReference, WebhookURL

_PROBE_TIMEOUT: Final = 2.0

_LOOPBACK: Final = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104 (connected to, not bound)
"""The loopback address by the address of all interfaces."""

_log = structlog.get_logger(__name__)


async def verify_sharing(sock: socket.socket, trusted: bytes) -> None:
    """Return if no other process listens on the port of the bound ``sock``, or if that process is a replica.

    A replica has a certificate of a CA in ``trusted`` (PEM). Call it before ``sock`` listens; two processes that do so
    within the same milliseconds do not see each other. Raises :class:`AddressUnavailable` if another program uses the
    port.
    """
    host, port = sock.getsockname()[:2]
    host = _LOOPBACK.get(host, host)
    try:
        await responds(host, port, trusted)
    except ConnectionRefusedError:
        return
    except ssl.SSLCertVerificationError:
        reason = "whose certificate is not signed by the CA of these webhooks"
    except (OSError, ValueError) as error:
        reason = f"which does not serve webhooks: {error or type(error).__name__}"
    else:
        _log.info("Sharing the webhook port with another replica", port=port)
        return
    problem = f"port {port} of the webhooks is in use by another process, {reason}"
    unavailable = AddressUnavailable(errno.EADDRINUSE, problem)
    unavailable.server = "webhook"
    unavailable.address = f"{host}:{port}"
    raise unavailable


async def responds(host: str, port: int, trusted: bytes, *, server_name: str | None = None) -> None:
    """Return if a server at ``host`` has a certificate of a CA in ``trusted`` (PEM).

    The certificate must be for ``server_name`` if it is given. Otherwise raises :class:`OSError` or
    :class:`ValueError`.
    """
    context = client_context(trusted)
    context.check_hostname = server_name is not None
    with anyio.fail_after(_PROBE_TIMEOUT):
        _, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=server_name or host
        )
    writer.close()


async def may_be_served(url: WebhookURL, trusted: bytes) -> bool:
    """Return whether another process serves at ``url`` with a certificate of a CA in ``trusted`` (PEM), or may do so.

    Only a refused connection proves that there is none. If the URL cannot be reached from here, because only API
    servers resolve its host, for example, the port on this machine decides. Call it after the own server has stopped
    listening.
    """
    bound = parse_bind_address(url.bind_address)
    local_host = "127.0.0.1"
    if bound is not None and bound[0] is not None:
        local_host = bound[0]
    for host in (url.host, local_host):
        try:
            await responds(host, url.port, trusted, server_name=url.host)
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError):
            continue
        else:
            return True
    return True


async def served_elsewhere(configuration: Object, own: WebhookURL | ServiceReference) -> str:
    """Return an address in a webhook configuration, other than ``own``, at which a server has a certificate of its CA.

    Empty if there is none: the process that wrote the URL has ended, or the Service has no pods. With a URL, only URLs
    count, because Services are replaced by it; with a Service only Services, because URLs are replaced by it.
    """
    bundles: dict[WebhookURL, bytes] = {}
    configs = client_configs(configuration)
    for name, bundle in ca_bundles_of(configuration).items():
        config = configs[name]
        if isinstance(own, WebhookURL):
            with suppress(ValueError):  # it has no URL
                netloc = urlsplit(config.get("url") or "").netloc
                bundles[WebhookURL.parse(f"https://{netloc}")] = bundle
            continue
        service = config.get("service")
        if not service:
            continue
        other = ServiceReference(service["namespace"], service["name"])
        if other != replace(own, port=other.port):
            port = service.get("port") or other.port
            bundles[WebhookURL(other.dns_names[0], port)] = bundle
    for address in bundles.keys() - {own}:
        with suppress(OSError, ValueError):
            await responds(address.host, address.port, bundles[address], server_name=address.host)
            return str(address)
    return ""
