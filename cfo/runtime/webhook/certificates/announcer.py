"""Keeps what configurations tell API servers about the webhooks as it should be."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import structlog
from cryptography import x509

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import AlreadyExists, APIError, Forbidden, NotFound, TransportError, UnknownKind
from cfo.runtime.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.objects import GVK, NamespacedName, Object, is_deleting, resource_version_of, uid_of
from cfo.runtime.webhook.certificates.announcement import (
    ORIGINAL,
    bundles_of,
    client_configs,
    created,
    is_ours_alone,
    merge_patch,
    revised,
)
from cfo.runtime.webhook.certificates.certificate_authority import authorities_of, vouches
from cfo.runtime.webhook.options import WebhookOptions
from cfo.runtime.webhook.registration import CONVERSION_PATH, Webhooks

__all__ = ["Announced", "Announcer"]


_PROBE_TIMEOUT: Final = 2.0

_log = structlog.get_logger("cfo.runtime.webhook.certificates")


class Announced(NamedTuple):
    """An object that tells of our webhooks."""

    gvk: GVK
    name: str
    informer: Informer

    @property
    def key(self) -> NamespacedName:
        """Its name, as the client takes it."""
        return NamespacedName("", self.name)

    def stored(self) -> Object | None:
        """The object as the informer knows it."""
        return self.informer.reader.get(self.key)

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.name}"


class Announcer:
    """The configurations and definitions that ``options`` name. Reads from ``cache``, writes with ``client``."""

    def __init__(self, client: Client, cache: Cache, webhooks: Webhooks, options: WebhookOptions) -> None:
        self._client = client
        self._webhooks = webhooks
        self._options = options
        named = [
            (MUTATING_WEBHOOK_CONFIGURATION, options.mutating_configuration),
            (VALIDATING_WEBHOOK_CONFIGURATION, options.validating_configuration),
            *((CUSTOM_RESOURCE_DEFINITION, name) for name in options.definitions),
        ]
        self.objects = tuple(
            Announced(gvk, name, cache.informer(gvk, field_selector=f"metadata.name={name}"))
            for gvk, name in named
            if name
        )

    @property
    def leads_to_url(self) -> bool:
        """Whether the configurations are to lead to a url of ours."""
        return self._options.url is not None

    async def announce(self, bundle: bytes | None) -> None:
        """Writes what is not as it should be; one write for each object at most.

        ``bundle`` (PEM; ``None``: others take care of it) is what API servers shall trust. A write that lost a race
        raises :class:`~cfo.runtime.client.errors.Conflict`; the others are done first.
        """
        errors: list[Exception] = []
        for announced in self.objects:
            try:
                await self._announce(announced, bundle)
            except (APIError, TransportError, UnknownKind) as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("some webhook configurations could not be written", errors)

    async def _announce(self, announced: Announced, bundle: bytes | None) -> None:
        url = self._options.url
        obj = announced.stored()
        if obj is None:
            if url is not None:
                await self._create(announced, bundle)
            return
        if is_deleting(obj):
            return
        if url is None and is_ours_alone(obj):
            await self._delete(announced, obj)
            return
        wanted = revised(obj, bundle=bundle, url=url, paths=self._paths(announced.gvk))
        if wanted != obj:
            await self._write(announced, obj, wanted)
            _log.info("wrote a webhook configuration", object=str(announced), url=str(url) if url else None)

    async def _write(self, announced: Announced, obj: Object, wanted: Object) -> None:
        """Changes ``obj`` into ``wanted``; by an update where a role (that of the Go operator) allows no patch."""
        try:
            await self._client.patch(announced.gvk, announced.key, merge_patch(obj, wanted))
        except Forbidden:
            await self._client.update(wanted)

    def _paths(self, gvk: GVK) -> dict[str, str]:
        if gvk == CUSTOM_RESOURCE_DEFINITION:
            return {"conversion": CONVERSION_PATH}
        return {
            hook.name: hook.path for hook in self._webhooks if hook.mutating == (gvk == MUTATING_WEBHOOK_CONFIGURATION)
        }

    async def _create(self, announced: Announced, bundle: bytes | None) -> None:
        if announced.gvk == CUSTOM_RESOURCE_DEFINITION or self._options.url is None:
            return
        configuration = self._webhooks.configuration(announced.gvk, announced.name, self._options.url)
        if configuration is None:
            return
        marked = revised(created(configuration), bundle=bundle, url=self._options.url, paths={})
        try:
            await self._client.create(marked)
        except AlreadyExists:
            return  # the watch will show it
        _log.info("made a webhook configuration", object=str(announced), url=str(self._options.url))

    async def _delete(self, announced: Announced, obj: Object) -> None:
        await self._client.delete(
            announced.gvk, announced.key, uid=uid_of(obj), resource_version=resource_version_of(obj)
        )
        _log.info("deleted a webhook configuration that was made for a url", object=str(announced))

    def bundles(self) -> Iterator[bytes]:
        """What API servers are told to trust (PEM), webhook by webhook, as far as is known."""
        for announced in self.objects:
            obj = announced.stored()
            if obj is not None:
                yield from bundles_of(obj).values()

    def trusts(self, authority: x509.Certificate) -> bool:
        """Whether every webhook in every object that exists trusts ``authority``."""
        return all(authority in authorities_of(bundle) for bundle in self.bundles())

    def problems(self, served: Iterable[x509.Certificate]) -> list[str]:
        """Why API servers cannot call the webhooks, or would not believe a server that shows the chain ``served``."""
        chain = list(served)
        found: list[str] = []
        for announced in self.objects:
            if not announced.informer.has_synced:
                found.append(f"{announced}: not read yet: {announced.informer.problem or 'being listed'}")
                continue
            obj = announced.stored()
            if obj is None:
                if self._paths(announced.gvk) and announced.gvk != CUSTOM_RESOURCE_DEFINITION:
                    found.append(f"{announced} does not exist")
                continue
            found += [
                f"{announced}: the caBundle of webhook {name} does not vouch for the certificate that is served"
                for name, bundle in bundles_of(obj).items()
                if not _vouched(bundle, chain)
            ]
            if self._options.url is not None:
                found += [
                    f"{announced}: webhook {name} does not lead to {self._options.url}"
                    for name, config in client_configs(obj).items()
                    if not str(config.get("url", "")).startswith(f"{self._options.url}/")
                ]
        return found

    async def withdraw(self, bundle: bytes | None, trusted: bytes) -> None:
        """Puts back what the configurations said before they led to our url, unless somebody still answers there.

        To be called when we do not listen any more. Errors are logged: the next start does what is missing.
        """
        url = self._options.url
        if url is None:
            return
        if await _answers(url.host, url.port, trusted):
            _log.info("another replica answers; the webhook configurations stay", url=str(url))
            return
        for announced in self.objects:
            try:
                obj = await self._client.get(announced.gvk, announced.key, live=True)
                if obj is None or ORIGINAL not in (obj["metadata"].get("annotations") or {}):
                    continue
                if is_ours_alone(obj):
                    await self._delete(announced, obj)
                    continue
                wanted = revised(obj, bundle=bundle, url=None, paths={})
                await self._write(announced, obj, wanted)
                _log.info("put back a webhook configuration", object=str(announced))
            except NotFound:
                continue
            except (APIError, TransportError, UnknownKind) as error:
                _log.warning(
                    "a webhook configuration still leads to our url; the next start puts it back",
                    object=str(announced),
                    error=str(error),
                )


def _vouched(bundle: bytes, chain: list[x509.Certificate]) -> bool:
    try:
        trusted = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return False
    return any(anchor == shown or vouches(anchor, shown) for anchor in trusted for shown in chain)


async def _answers(host: str, port: int, trusted: bytes) -> bool:
    """Whether a server with a certificate that ``trusted`` (PEM) vouches for accepts connections."""
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=trusted.decode())
        async with asyncio.timeout(_PROBE_TIMEOUT):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    except (OSError, ValueError, ssl.SSLError, TimeoutError):
        return False
    writer.close()
    return True
