"""Conversion functions between the versions of a typed kind."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Generic, TypeVar

from cfo.runtime.objects.errors import SchemaError
from cfo.runtime.objects.resource.custom_resource import CustomResource
from cfo.runtime.objects.unstructured import GVK, Object, gvk_of

Hub = TypeVar("Hub", bound=CustomResource)
Spoke = TypeVar("Spoke", bound=CustomResource)


class Conversions(Generic[Hub]):
    """Converts the objects of one kind between its versions, each through the class ``hub``.

    .. code-block:: python

        conversions = Conversions(Website)
        conversions.add(WebsiteV1Beta1, to_hub=website_of_beta, from_hub=beta_of_website)
        manager.webhooks.register(Website, converter=conversions)

    A function returns a new object of the other version. Its metadata are taken from the original, except for the
    labels and annotations that the function sets: an annotation can keep a field that the other version does not have.
    """

    def __init__(self, hub: type[Hub]) -> None:
        self._hub = hub
        self._spokes: dict[str, tuple[type[CustomResource], Callable[[Any], Any], Callable[[Any], Any]]] = {}

    def add(self, version: type[Spoke], *, to_hub: Callable[[Spoke], Hub], from_hub: Callable[[Hub], Spoke]) -> None:
        """Add the conversions of the class ``version``.

        Raises :class:`SchemaError` for another kind, and for a version that was added before.
        """
        gvk, hub = version.gvk, self._hub.gvk
        if (gvk.group, gvk.kind) != (hub.group, hub.kind) or gvk == hub or gvk.api_version in self._spokes:
            raise SchemaError(f"{gvk}: must be another version of {hub} that was not added before")
        self._spokes[gvk.api_version] = (version, to_hub, from_hub)

    def convert(self, obj: Object, api_version: str) -> Object:
        """Return ``obj`` in ``api_version`` (see :class:`~cfo.runtime.webhook.conversion.Converter`).

        Raises :class:`ValueError` for an unknown version, and if ``obj`` does not fit its class.
        """
        source = gvk_of(obj)
        if api_version == source.api_version:
            return obj
        metadata = deepcopy(obj.get("metadata") or {})
        hub_version = self._hub.gvk.api_version
        if source.api_version != hub_version:
            version, to_hub, _ = self._spoke(source.api_version)
            obj = _with_metadata(to_hub(version.decode(obj)), self._hub.gvk, metadata)
        if api_version != hub_version:
            version, _, from_hub = self._spoke(api_version)
            obj = _with_metadata(from_hub(self._hub.decode(obj)), version.gvk, metadata)
        return obj

    def _spoke(self, api_version: str) -> tuple[type[CustomResource], Callable[[Any], Any], Callable[[Any], Any]]:
        try:
            return self._spokes[api_version]
        except KeyError:
            raise ValueError(f"{self._hub.gvk.kind}: no conversion is registered for {api_version}") from None


def _with_metadata(result: CustomResource, gvk: GVK, metadata: Object) -> Object:
    """Return ``result`` with ``metadata``, into which its labels and annotations are merged."""
    if result.gvk != gvk:
        raise TypeError(f"the conversion returned {result.gvk} instead of {gvk}")
    for name, values in (("labels", result.metadata.labels), ("annotations", result.metadata.annotations)):
        if name in result.metadata.model_fields_set or values:
            metadata[name] = dict(values)
    return {**result.to_object(), "metadata": metadata}
