"""The Helm chart renders the same objects as ``cfo manifests``.

The chart is rendered by a small renderer, because Helm is not always installed. Where it is, it renders the chart, too.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from cfo.features import OPTIONAL_ROLES
from cfo.features.contract import OptionalRole
from cfo.manifests.names import default_image
from cfo.manifests.overlays import COMPONENTS, render
from cfo.version import __version__
from test.support.charts import CHART, Renderer, render_chart
from test.support.manifests import by_key

VALUE_SWITCHES = {
    "certmanager": "certManager",
    "network-policy": "networkPolicy",
    "reserved-hosts": "reservedHosts",
}


def expected_objects(components: list[str]) -> dict[tuple[str, str, str], dict[str, Any]]:
    objects = by_key(render(namespace="target", components=components))
    return {
        key: obj
        for key, obj in objects.items()
        if key[0] not in ("Namespace", "CustomResourceDefinition")
    }


def with_sorted_volumes(
    objects: dict[tuple[str, str, str], dict[str, Any]],
) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Sort the volumes of the Deployment, because their order is irrelevant."""
    for (kind, _, _), obj in objects.items():
        if kind == "Deployment":
            pod = obj["spec"]["template"]["spec"]
            pod["volumes"].sort(key=lambda volume: volume["name"])
            pod["containers"][0]["volumeMounts"].sort(key=lambda mount: mount["name"])
    return objects


@pytest.mark.parametrize(
    "components", [[], *([name] for name in sorted(COMPONENTS)), sorted(COMPONENTS)]
)
def test_chart_renders_the_same_objects(components: list[str]) -> None:
    values = {
        VALUE_SWITCHES.get(name, name): {"enabled": True, "webhookSources": []}
        for name in components
    }
    assert with_sorted_volumes(by_key(render_chart("target", values))) == with_sorted_volumes(
        expected_objects(components)
    )


def test_webhook_sources_are_limited() -> None:
    sources = [{"ipBlock": {"cidr": "192.0.2.0/28"}}]
    objects = by_key(
        render_chart("target", {"networkPolicy": {"enabled": True, "webhookSources": sources}})
    )
    (expected,) = [
        obj
        for obj in render(
            namespace="target", components=["network-policy"], api_servers=["192.0.2.0/28"]
        )
        if obj["kind"] == "NetworkPolicy"
    ]
    assert objects["NetworkPolicy", "target", "codeflare-operator-manager"] == expected
    assert expected["spec"]["ingress"][0]["from"] == sources


def test_values_are_rendered() -> None:
    config = {"kuberay": {"ingressDomain": "apps.test", "rayDashboardOAuthEnabled": False}}
    values = {
        "image": {"repository": "registry.test/cfo", "tag": "v9", "pullPolicy": "Always"},
        "replicas": 1,
        "resources": {"requests": {"cpu": "2"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [{"name": "CERT_GENERATOR_IMAGE", "value": "registry.test/ubi9"}],
        "config": config,
    }
    objects = by_key(render_chart("target", values))
    deployment = objects["Deployment", "target", "codeflare-operator-manager"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 1
    assert container["image"] == "registry.test/cfo:v9"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {"requests": {"cpu": "2"}}
    assert pod["nodeSelector"] == {"pool": "system"}
    for name in ("tolerations", "affinity", "priorityClassName", "imagePullSecrets"):
        assert pod[name] == values[name]
    names = [variable["name"] for variable in container["env"]]
    assert names == ["NAMESPACE", "CERT_GENERATOR_IMAGE"]
    assert container["env"][1] == {"name": "CERT_GENERATOR_IMAGE", "value": "registry.test/ubi9"}
    config_map = objects["ConfigMap", "target", "codeflare-operator-config"]
    assert yaml.safe_load(config_map["data"]["config.yaml"]) == config


def test_notes_name_the_settings_that_use_the_installed_roles() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    text = (CHART / "templates" / "NOTES.txt").read_text()
    check = "Check the installation: cfo doctor -n target"
    assert Renderer(defaults, "target").render(text).splitlines() == [check]
    values = {**defaults, "appwrapper": {"enabled": True}}
    assert Renderer(values, "target").render(text).splitlines() == [
        check,
        "appwrapper.enabled only grants permissions; what uses them needs config.appwrapper.enabled=true",
    ]


@pytest.mark.parametrize("role", [role for role in OPTIONAL_ROLES if role.name != "openshift"])
def test_notes_name_a_setting_for_each_role_that_the_configuration_enables(
    role: OptionalRole,
) -> None:
    text = (CHART / "templates" / "NOTES.txt").read_text()
    assert f"{role.name}.enabled only grants permissions" in text


def test_chart_has_the_current_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert f"{values['image']['repository']}:v{__version__}" == default_image()


def test_helm_renders_the_same_objects() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    result = subprocess.run(
        [helm, "template", "release", str(CHART), "--namespace", "target"],
        capture_output=True,
        text=True,
        check=True,
    )
    objects = [obj for obj in yaml.safe_load_all(result.stdout) if obj]
    assert with_sorted_volumes(by_key(objects)) == with_sorted_volumes(expected_objects([]))
