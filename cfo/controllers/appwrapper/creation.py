"""Creates the components of an AppWrapper."""

from __future__ import annotations

from typing import Final

from cfo.config import AppWrapperConfiguration
from cfo.controllers.appwrapper.component_informers import ComponentInformers
from cfo.controllers.appwrapper.components import Component, desired_object
from cfo.controllers.appwrapper.decision import Observation
from cfo.controllers.appwrapper.injection import InjectionError
from cfo.controllers.appwrapper.transition import Creation, missing_components
from cfo.runtime import (
    APIError,
    BadRequest,
    Client,
    DiscoveryIncomplete,
    Invalid,
    Object,
    UnknownKind,
    is_deleting,
    uid_of,
)
from cfo.runtime.client import NameTaken, OwnedWrites

__all__ = ["ComponentCreator"]

_FATAL: Final = (Invalid, BadRequest)

_CREATIONS_PER_STEP: Final = 20
"""How many components one reconcile creates, so that AppWrappers with many components do not delay others."""


class ComponentCreator:
    """Creates components with ``client``; objects created by an earlier attempt are reused."""

    def __init__(self, client: Client, config: AppWrapperConfiguration, components: ComponentInformers) -> None:
        self._client = client
        self._config = config
        self._components = components

    async def create_missing(self, observation: Observation) -> list[Creation]:
        """Create the first missing components in order, up to one that is rejected or to the limit of a step."""
        creations: list[Creation] = []
        for component in missing_components(observation)[:_CREATIONS_PER_STEP]:
            creations.append(await self._create(observation.wrapper, component))
            if creations[-1].error:
                break
        return creations

    async def _create(self, wrapper: Object, component: Component) -> Creation:
        try:
            obj = desired_object(wrapper, component, self._config)
            if not (await self._client.mapper.resource(component.gvk)).namespaced:
                problem = f"{component.display_name} is cluster-scoped, so it cannot belong to an AppWrapper"
                return Creation(component, error=problem, fatal=True)
            await self._components.synced(component.gvk)
            # An object that an earlier attempt created is used.
            existing, is_new = await OwnedWrites(self._client, wrapper, block_owner_deletion=True).create(obj)
            if not is_new and is_deleting(existing):
                return Creation(component, error=f"resource {component.key.name} is being deleted")
            return Creation(component, uid=uid_of(existing))
        except NameTaken as taken:
            problem = f"resource {component.key.name} exists, but is not controlled by appwrapper"
            return Creation(component, error=problem, fatal=not taken.is_of_predecessor)
        except UnknownKind:
            gvk = component.gvk
            problem = f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"'
            return Creation(component, error=problem, fatal=True)
        except (InjectionError, ValueError) as error:
            return Creation(component, error=str(error), fatal=True)
        except APIError as error:
            return Creation(component, error=error.message, fatal=isinstance(error, _FATAL))
        except DiscoveryIncomplete as error:
            return Creation(component, error=str(error))
