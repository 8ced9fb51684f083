"""Tests that AppWrappers with many components cannot keep the operator busy."""

from __future__ import annotations

from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.rbac import CRUD, Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of
from test.support.appwrapper_environment import (
    AppWrapperEnvironment,
    configuration,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.operator_roles import grant
from test.support.raycluster_environment import eventually

CONFIG_MAPS = Rule("", "configmaps", CRUD)
"""A permission for components that the operator's role lacks."""

COMPONENTS = 49
MISSING = 2
"""So many ConfigMaps of each AppWrapper are deleted; with more of them, the test only takes longer."""


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_missing_components_are_read_once_and_do_not_delay_others() -> None:
    hostile = [f"hostile{index}" for index in range(8)]  # as many as there are workers
    async with start_appwrapper_environment() as environment:
        for namespace in ("ns", "honest"):
            await environment.create_namespace(namespace)
        await grant(environment, CONFIG_MAPS)
        async with run_appwrapper_controllers(environment, configuration()):
            for name in hostile:
                components = [config_map(f"{name}-{index}") for index in range(MISSING)]
                settings = {"deletionOnFailureGracePeriodDuration": "1h"}
                await environment.create(wrapper(pod(name), *components, name=name, **settings))
            for name in hostile:
                await environment.wait_for_phase("Running", name=name)
            await environment.wait_until_idle()
            for component in await environment.client.list(CONFIG_MAP, namespace="ns"):
                await environment.client.delete(CONFIG_MAP, key_of(component))
            for name in hostile:
                await environment.wait_for_phase("Failed", name=name)
            await environment.wait_until_idle()
            environment.clear_requests()
            for round_ in range(2):
                for name in hostile:
                    patch = {"metadata": {"labels": {"round": str(round_)}}}
                    obj = await environment.get_wrapper(name)
                    await environment.patch(obj, patch)
                await environment.create(wrapper(pod("p"), name=f"w{round_}", namespace="honest"))
                await environment.wait_for_phase(
                    "Running", "Failed", name=f"w{round_}", namespace="honest"
                )
            await environment.wait_until_idle()
            assert [
                verb for verb, resource in environment.requests() if resource == "configmaps"
            ] == []
            key = NamespacedName("ns", f"{hostile[0]}-0")
            assert await environment.client.get(CONFIG_MAP, key) is None


async def test_many_components_are_created_in_several_steps() -> None:
    async with start_appwrapper_environment() as environment:
        await environment.create_namespace()
        await grant(environment, CONFIG_MAPS)
        async with run_appwrapper_controllers(environment, configuration()):
            await environment.create(
                wrapper(pod(), *(config_map(f"c{index}") for index in range(COMPONENTS)))
            )
            await environment.wait_for_phase("Running")

            async def all_steps_were_reported() -> bool:
                return created_components(environment)[-1:] == [COMPONENTS + 1]

            await eventually(all_steps_were_reported, "status with all components")
            assert sorted(set(created_components(environment)))[:3] == [0, 20, 40]


def created_components(environment: AppWrapperEnvironment) -> list[int]:
    """Return the number of created components in each status that the watch has reported."""
    return [
        sum(
            any(item["type"] == "ResourcesDeployed" for item in status.get("conditions") or ())
            for status in snapshot.get("status", {}).get("componentStatus") or ()
        )
        for snapshot in environment.snapshots[("ns", "w")]
    ]
