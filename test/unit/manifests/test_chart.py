"""The Helm chart renders the same objects as ``cfo manifests``.

The chart is rendered by a small renderer, because Helm is not always installed. Where it is, it renders the chart, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from cfo.config.document import default_document, parse
from cfo.config.model import OperatorConfiguration
from cfo.config.section import ConfigurationError
from cfo.features import OPTIONAL_ROLES
from cfo.features.contract import OptionalRole
from cfo.manifests.names import LABELS, default_image, named
from cfo.manifests.overlays import COMPONENTS, render
from cfo.version import CONFIG_MAP_NAME, __version__
from test.support.charts import CHART, Renderer, refused_by_schema, render_chart
from test.support.manifests import by_key

VALUE_SWITCHES = {
    "certmanager": "certManager",
    "network-policy": "networkPolicy",
    "reserved-hosts": "reservedHosts",
}


def expected_objects(components: list[str]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the manifests as Helm has them: with a ConfigMap, and without the Namespace and the CRDs."""
    objects = by_key(render(namespace="target", components=components))
    rendered = {
        key: obj
        for key, obj in objects.items()
        if key[0] not in ("Namespace", "CustomResourceDefinition")
    }
    config_map = named("v1", "ConfigMap", CONFIG_MAP_NAME, "target")
    config_map["data"] = {"config.yaml": "{}\n"}
    assert parse("{}\n").configuration == OperatorConfiguration()
    rendered["ConfigMap", "target", CONFIG_MAP_NAME] = config_map
    return rendered


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
        VALUE_SWITCHES.get(name, name): {"enabled": True, "webhookSources": [], "labels": {}}
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
        "prometheus": {"enabled": True, "labels": {"release": "stack"}},
    }
    objects = by_key(render_chart("target", values))
    for (kind, _, _), obj in objects.items():
        if kind in ("ServiceMonitor", "PrometheusRule"):
            assert obj["metadata"]["labels"] == {**LABELS, "release": "stack"}
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


def test_pods_are_restarted_by_a_change_of_the_configuration() -> None:
    checksums: set[str] = set()
    for domain in ("a.test", "b.test", "a.test"):
        values = {"config": {"kuberay": {"ingressDomain": domain}}}
        deployment = by_key(render_chart("target", values))[
            "Deployment", "target", "codeflare-operator-manager"
        ]
        checksums.add(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])
    assert len(checksums) == 2


def notes(**values: Any) -> list[str]:
    """Return the lines of the notes, without those that are always printed."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    text = (CHART / "templates" / "NOTES.txt").read_text()
    first, *rest = Renderer({**defaults, **values}, "target").render(text).splitlines()
    assert first == "Check the installation: cfo doctor -n target"
    return rest


def test_notes_warn_of_the_default_image() -> None:
    (line,) = notes()
    assert "the tag is not one of the Go operator, whose images have the same name" in line
    assert notes(image={"repository": "registry.test/cfo", "tag": "v1"}) == []


USED: dict[str, list[dict[str, Any]]] = {
    "appwrapper": [{"appwrapper": {"enabled": True}}],
    "kueue": [
        {"appwrapper": {"enabled": True, "kueueIntegration": True}},
        {"appwrapper": {"enabled": True, "slackQueueName": "s"}},
    ],
    "flux": [{"flux": {"enabled": True}}],
    "inferencestack": [{"inferenceStack": {"enabled": True}}],
    "authentication": [
        {"kuberay": {"authentication": {"enabled": True}}},
        {"kuberay": {"kubeRayFeatures": ["authOptions"]}},
    ],
    "gateway": [
        {"kuberay": {"gateway": {"name": "g", "namespace": "n", "dashboardListener": "https"}}}
    ],
    "namespaces": [
        {"kuberay": {"profiles": [{"name": "p"}]}},
        {"kuberay": {"networkPolicy": {"defaultDeny": {"namespaceSelector": ""}}}},
    ],
    "csr": [{"kuberay": {"ca": {"issuer": "certificateSigningRequest"}}}],
    "dashboard": [{"metrics": {"dashboard": True, "secureServing": True, "bindAddress": ":8080"}}],
}
"""Configurations that use the role of a feature."""


@pytest.mark.parametrize("role", [role for role in OPTIONAL_ROLES if role.name != "openshift"])
def test_notes_name_the_setting_that_uses_an_installed_role_unless_it_is_set(
    role: OptionalRole,
) -> None:
    image = {"repository": "registry.test/cfo", "tag": "v1"}
    for unused in ({}, {"kuberay": None}, {"kuberay": {"ca": None}}):
        (line,) = notes(image=image, config=unused, **{role.name: {"enabled": True}})
        assert line.startswith(f"{role.name}.enabled only grants permissions; what uses them needs")
    for used in USED[role.name]:
        assert role.is_enabled(OperatorConfiguration.from_document(used)), "as in the operator"
        assert notes(image=image, config=used, **{role.name: {"enabled": True}}) == []


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({}, []),
        ({"appwraper": {"enabled": True}}, ["appwraper"]),
        ({"appwrapper": {"enabled": "false"}}, ["appwrapper.enabled"]),
        ({"flux": {"enable": True}}, ["flux.enable"]),
        ({"config": "foo"}, ["config"]),
        ({"resources": {"requests": {"cpu": 2}}, "nodeSelector": {"pool": "system"}}, []),
        ({"global": {"of": "a parent chart"}}, []),
    ],
)
def test_misspelled_and_invalid_values_are_refused(
    values: dict[str, Any], refused: list[str]
) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert refused_by_schema(schema(), {**defaults, **values}) == refused


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (default_document(), ""),
        (yaml.safe_dump(OperatorConfiguration().to_document()), ""),
        ("{kuberay: null, appwrapper: {enabled: true, Config: {faultTolerance: null}}}", ""),
        ("leaderElection: {leaseDuration: '', resourceName: '', resourceLock: ''}", ""),
        ("kuberay: {ca: {keyAlgorithm: RSA, nodeCertificateLifetime: 2h}}", ""),
        ("{flux: {warmupGracePeriod: 90000000000}, clientConnection: {qps: 2.5}}", ""),
        (f"kuberay: {{ingressDomain: {'a.' * 120}test}}", ""),
        ("appwrapper: {autopilot: {resourceTaints: {gpu: [{key: a, effect: NoExecute}]}}}", ""),
        ("kuberay: {ingressDomain: 'https://x'}", "kuberay.ingressDomain"),
        ("kuberay: {mTLSEnabled: 'no'}", "kuberay.mTLSEnabled"),
        ("kuberay: {kubeRayFeatures: [all]}", "kuberay.kubeRayFeatures"),
        ("kuberay: {profiles: [{name: A}]}", "kuberay.profiles.name"),
        ("watchNamespaces: team", "watchNamespaces"),
        ("watchNamespaces: [Team]", "watchNamespaces"),
        ("flux: {warmupGracePeriod: 1.5}", "flux.warmupGracePeriod"),
        ("flux: {defaultSetup: {maxSize: -1}}", "flux.defaultSetup.maxSize"),
        ("flux: {defaultSetup: {queueingStrategy: Any}}", "flux.defaultSetup.queueingStrategy"),
    ],
)
def test_schema_refuses_only_configurations_that_the_operator_refuses(
    config: str, refused: str
) -> None:
    found = refused_by_schema(schema(), {"config": yaml.safe_load(config)})
    assert found == ([f"config.{refused}"] if refused else [])
    if refused:
        with pytest.raises(ConfigurationError, match=refused.partition(".name")[0]):
            parse(config)
    else:
        parse(config)


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ("appwraper: {enabled: true}", "appwraper"),
        ("KUBERAY: {}", "KUBERAY"),
        ("kuberay: {ingresDomain: x.test}", "kuberay.ingresDomain"),
        ("leaderElection: {leaderElected: false}", "leaderElection.leaderElected"),
        ("appwrapper: {Config: {enable: true}}", "appwrapper.Config.enable"),
    ],
)
def test_schema_refuses_misspelled_settings(config: str, refused: str) -> None:
    """The operator only warns of them, and reads its defaults."""
    assert refused_by_schema(schema(), {"config": yaml.safe_load(config)}) == [f"config.{refused}"]
    assert parse(config).warnings


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
