"""How the registry is filled: built-in kinds at once, custom ones as their definitions come and go."""

from __future__ import annotations

from cfo.envtest.builtins.table import register_builtins
from cfo.envtest.core import Core
from cfo.envtest.crd import Definitions, DefinitionStrategy
from cfo.envtest.errors import GroupResource
from cfo.envtest.storage import Change
from cfo.envtest.storage.record import DELETED

__all__ = ["register"]

_SERVICES = GroupResource("", "services")


def register(core: Core) -> Definitions:
    """Registers all built-in resources and follows the definitions of custom ones."""
    register_builtins(core.registry, definitions=DefinitionStrategy)
    definitions = Definitions(core.store, core.registry)
    core.store.followers.append(definitions.follow)
    services = core.registry.lookup("", "v1", "services")
    assert services is not None

    def follow_services(resource: GroupResource, change: Change) -> None:
        if resource == _SERVICES and change.type == DELETED:
            services.strategy.release(change.record.uid)  # type: ignore[attr-defined]

    core.store.followers.append(follow_services)
    return definitions
