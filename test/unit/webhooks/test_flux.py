"""The validators of Flux objects while the configuration disables their controllers."""

from __future__ import annotations

import pytest

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import GVK
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.webhooks import flux
from test.support.config_map_webhooks import OPTIONS

VALID = {
    MINICLUSTER: {"containers": [{"image": "a"}]},
    FLUX_JOB: {"command": "true", "image": "a"},
    FLUX_SETUP: {},
}


@pytest.mark.parametrize("kind", VALID)
@pytest.mark.parametrize("is_served", [True, False])
async def test_creation_warns_while_the_configuration_disables_flux(
    kind: GVK, *, is_served: bool
) -> None:
    manager = Manager(ClientConfig(server="https://localhost"), ManagerOptions(webhook=OPTIONS))
    validators = flux.setup(manager, [], check_permissions=False, is_served=is_served)
    obj = {
        "apiVersion": "a/v1",
        "kind": kind.kind,
        "metadata": {"name": "a", "namespace": "b"},
        "spec": VALID[kind],
    }
    request = AdmissionRequest()
    await validators[kind].validate_create(obj, request)
    assert (
        any("its configuration disables them" in warning for warning in request.warnings)
        is not is_served
    )
