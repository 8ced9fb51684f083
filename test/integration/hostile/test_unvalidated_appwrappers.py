"""Tests that no AppWrapper is deployed whose creator no webhook has checked."""

from __future__ import annotations

from pathlib import Path

import yaml

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.appwrapper.names import APPWRAPPER
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.objects.kinds import NAMESPACE, POD, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, find_condition, name_of
from test.support.appwrapper_environment import pod, wrapper
from test.support.clocks import next_second
from test.support.config_map_webhooks import free_url
from test.support.operator_process import LOOPBACK_ADDRESSES, create_config_map, run_operator
from test.support.raycluster_environment import Environment, eventually, start_environment
from test.support.tenant_clients import start_tenant_client

CREATE_WRAPPERS = Rule("workload.codeflare.dev", "appwrappers", ("get", "create", "patch"))
NAME = "codeflare-operator-validating-webhook-configuration"


async def _validated(environment: Environment, name: str, status: str, reason: str) -> Object:
    """Wait until an AppWrapper has the condition ``Validated``, and return the AppWrapper."""

    async def check() -> Object | None:
        obj = await environment.get(APPWRAPPER, name)
        found = find_condition((obj.get("status") or {}).get("conditions"), "Validated") or {}
        assert (found.get("status"), found.get("reason")) == (status, reason), (
            obj.get("status"),
            reason,
        )
        return obj

    result: Object = await eventually(check, f"{name} {reason}")
    return result


async def _wait_for_pod(environment: Environment, name: str) -> None:
    async def exists() -> bool:
        return await environment.find(POD, name) is not None

    await eventually(exists, f"pod {name}")


async def test_appwrappers_that_bypassed_the_webhook_are_never_deployed(tmp_path: Path) -> None:
    settings = {
        "config.yaml": yaml.safe_dump({**LOOPBACK_ADDRESSES, "appwrapper": {"enabled": True}})
    }
    async with start_environment(appwrapper_crd()) as environment:
        await environment.create_namespace()
        await create_config_map(environment, settings)
        await environment.create(
            wrapper(pod("early"), name="early")
        )  # an installation without any webhook
        async with (
            start_tenant_client(environment, CREATE_WRAPPERS) as bob,
            run_operator(environment, tmp_path, "--webhook-url", str(free_url())) as operator,
        ):
            await operator.ready()
            await _validated(environment, "early", "False", "CreatedWithoutValidation")
            await next_second()
            for name, suspend in (("runs", False), ("waits", True)):
                await environment.create(wrapper(pod(name), name=name, suspend=suspend))
                await _validated(environment, name, "True", "AdmissionWebhook")
            await _wait_for_pod(environment, "runs")

            key = NamespacedName("", NAME)
            stored = await environment.client.get(VALIDATING_WEBHOOK_CONFIGURATION, key)
            assert stored is not None
            narrowed = [
                {**hook, "namespaceSelector": {"matchLabels": {"no": "match"}}}
                for hook in stored["webhooks"]
            ]
            await environment.client.patch(
                VALIDATING_WEBHOOK_CONFIGURATION, key, {"webhooks": narrowed}
            )
            for verb in (
                "create",
                "patch",
            ):  # an API server applies a changed configuration after a moment

                async def bypasses(verb: str = verb) -> bool:
                    try:
                        if verb == "create":
                            await bob.create(wrapper(pod("esc", labels={"by": "bob"}), name="esc"))
                        else:
                            spec = wrapper(pod("esc2"), suspend=False)["spec"]
                            await bob.patch(
                                APPWRAPPER, NamespacedName("ns", "waits"), {"spec": spec}
                            )
                    except Forbidden:
                        return False
                    return True

                await eventually(bypasses, f"{verb} without the webhook")
            await environment.wait_for_event("NotValidated", "Delete it and create it again")
            await _validated(environment, "esc", "False", "CreatedWithoutValidation")
            await _validated(environment, "waits", "False", "ChangedWithoutValidation")
            await environment.client.patch(
                VALIDATING_WEBHOOK_CONFIGURATION, key, {"webhooks": stored["webhooks"]}
            )

            async def is_checked() -> bool:
                try:
                    await bob.create(wrapper(pod("esc3"), name="esc3"))
                except Forbidden:
                    return True
                return False

            await eventually(is_checked, "the webhook")
            await next_second()
            await environment.create(wrapper(pod("new"), name="new"))
            await _wait_for_pod(
                environment, "new"
            )  # reconciled after all others: none of them was deployed
            names = {name_of(item) for item in await environment.client.list(POD, namespace="ns")}
            assert names == {"runs", "new"}
            assert (await environment.get(APPWRAPPER, "runs"))["status"]["phase"] == "Running"


async def test_namespace_selectors_that_tenants_cannot_influence_validate_appwrappers(
    tmp_path: Path,
) -> None:
    settings = {
        "config.yaml": yaml.safe_dump({**LOOPBACK_ADDRESSES, "appwrapper": {"enabled": True}})
    }
    name_label, olm_label = "kubernetes.io/metadata.name", "olm.operatorgroup.uid/1234"
    async with start_environment(appwrapper_crd()) as environment:
        await environment.create_namespace()
        await create_config_map(environment, settings)
        async with run_operator(
            environment, tmp_path, "--webhook-url", str(free_url())
        ) as operator:
            await operator.ready()

            async def select(selector: Object) -> None:
                key = NamespacedName("", NAME)
                stored = await environment.client.get(VALIDATING_WEBHOOK_CONFIGURATION, key)
                assert stored is not None
                hooks = [{**hook, "namespaceSelector": selector} for hook in stored["webhooks"]]
                await environment.client.patch(
                    VALIDATING_WEBHOOK_CONFIGURATION, key, {"webhooks": hooks}
                )

            async def create(name: str, namespace: str = "ns") -> None:
                await next_second()
                obj = wrapper(pod(name), name=name)
                obj["metadata"]["namespace"] = namespace
                await environment.create(obj)

            not_system = {"key": name_label, "operator": "NotIn", "values": ["kube-system"]}
            await select({"matchExpressions": [not_system]})
            await create("admins")
            await _wait_for_pod(environment, "admins")
            await create("excluded", "kube-system")
            why = "its namespaceSelector does not select namespace kube-system"
            await environment.wait_for_event("NotValidated", why, namespace="kube-system")

            await select({"matchLabels": {olm_label: ""}})
            await create("early")
            await environment.wait_for_event(
                "NotValidated", "its namespaceSelector does not select namespace ns"
            )
            labels = {"metadata": {"labels": {olm_label: ""}}}
            await environment.client.patch(NAMESPACE, NamespacedName("", "ns"), labels)
            await create("olm")
            await _wait_for_pod(environment, "olm")
            await _validated(environment, "early", "False", "CreatedWithoutValidation")

            await select({"matchLabels": {"team": "a"}})
            await create("labels")
            await environment.wait_for_event(
                "NotValidated", "namespaceSelector team=a depends on a label"
            )
            names = {name_of(item) for item in await environment.client.list(POD)}
            assert names == {"admins", "olm"}
