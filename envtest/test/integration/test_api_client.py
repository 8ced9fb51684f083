"""What the client of tests says when a condition is not met in time."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web"}]},
        },
    },
}


async def timeout_of(controllers: list[str], code: int = 200, condition: Any = None) -> str:
    """Return the message of a wait for a Deployment that is not met, but has seen a response."""
    async with ControlPlane.embedded(controllers=controllers) as plane, APIClient(plane) as client:
        created = await client.post(DEPLOYMENTS, DEPLOYMENT)
        assert created.code == 201, created
        for timeout in (0.05, 0.5, 5.0, 50.0):
            with pytest.raises(TimeoutError) as failed:
                await client.until(f"{DEPLOYMENTS}/web", code, condition=condition, timeout=timeout)
            if "there was no response" not in str(failed.value):
                break
    return str(failed.value)


@pytest.mark.parametrize(
    ("controllers", "missing"),
    [
        (["gc"], "deployment, pods"),
        (["deployment"], "pods"),
        (["deployment", "pods"], ""),
    ],
)
async def test_timeout_names_the_controllers_that_do_not_run(
    controllers: list[str], missing: str
) -> None:
    message = await timeout_of(controllers, condition=lambda body: False)
    hint = "; the control plane runs without the controllers that write this status: "
    if missing:
        assert message.endswith(hint + missing)
    else:
        assert hint not in message


async def test_timeout_of_a_deletion_names_no_controllers() -> None:
    assert "controllers" not in await timeout_of(["gc"], 404)
