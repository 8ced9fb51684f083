"""The Helm chart renders the same objects as ``cfo manifests``.

The chart is rendered by the small renderer below, because Helm is not always installed. The renderer only supports the
expressions that the chart uses, and rejects others. Where Helm is installed, it renders the chart, too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.manifests import COMPONENTS, default_image, render
from cfo.version import __version__
from test.support.manifests import by_key, load_all

CHART = Path(__file__).parents[3] / "deploy" / "charts" / "codeflare-operator"
TOKEN = re.compile(r"(\s*)\{\{-\s(.*?)\s\}\}|\{\{\s(.*?)\s\}\}", re.DOTALL)
LOOP = re.compile(r"\{\{- range (\S+) \}\}\n(.*)\{\{- end \}\}\n(?=\{\{- end \}\})", re.DOTALL)
"""A loop, which must be the only content of a condition."""
VALUE_SWITCHES = {"certmanager": "certManager", "network-policy": "networkPolicy"}


class Renderer:
    """Renders the expressions of this chart; an unknown one is an error."""

    def __init__(self, values: dict[str, Any], namespace: str) -> None:
        self.values = values
        self.namespace = namespace

    def value(self, expression: str, context: Any) -> Any:
        if expression == ".":
            return context
        if re.fullmatch(r"\.[a-z]+", expression):
            return context[expression[1:]]
        if expression in (".Release.Namespace", "$.Release.Namespace"):
            return self.namespace
        if (joined := re.fullmatch(r'join "," (\S+)', expression)) is not None:
            return ",".join(self.value(joined[1], context))
        if expression == "`{{`":
            return "{{"
        if expression == '.Values.image.tag | default (print "v" .Chart.AppVersion)':
            return self.values["image"]["tag"] or f"v{__version__}"
        value = self.values
        assert re.fullmatch(r"\.Values(\.\w+)+", expression), expression
        for part in expression.split(".")[2:]:
            value = value[part]
        return value

    def render(self, text: str, context: Any = None) -> str:
        if (loop := LOOP.search(text)) is not None:
            items = self.value(loop[1], context)
            text = LOOP.sub(lambda _: "".join(self.render(loop[2], item) for item in items), text)
        output, conditions, contexts = [], [True], [context]
        position = 0
        for token in TOKEN.finditer(text):
            if all(conditions):
                output.append(text[position : token.start()])
            position = token.end()
            expression = token[2] or token[3]
            if (block := re.fullmatch(r"(if|with) (not )?(\S+)", expression)) is not None:
                value = self.value(block[3], contexts[-1])
                conditions.append(bool(value) is not bool(block[2]))
                contexts.append(value if block[1] == "with" else contexts[-1])
            elif expression == "end":
                conditions.pop()
                contexts.pop()
            elif (dumped := re.fullmatch(r"toYaml (\S+) \| nindent (\d+)", expression)) is not None:
                body = yaml.safe_dump(self.value(dumped[1], contexts[-1]), sort_keys=False).splitlines()
                if all(conditions):
                    output += [f"\n{' ' * int(dumped[2])}{line}" for line in body]
            elif all(conditions):
                output.append(str(self.value(expression, contexts[-1])))
        output.append(text[position:])
        assert len(conditions) == 1
        return "".join(output)


def render_chart(namespace: str, values: dict[str, Any], chart: Path = CHART) -> list[dict[str, Any]]:
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    renderer = Renderer({**defaults, **values}, namespace)
    documents = [renderer.render(path.read_text()) for path in sorted((chart / "templates").glob("*.yaml"))]
    return [obj for text in documents for obj in load_all(text) if obj]


def expected_objects(components: list[str]) -> dict[tuple[str, str, str], dict[str, Any]]:
    objects = by_key(render(namespace="target", components=components))
    return {key: obj for key, obj in objects.items() if key[0] not in ("Namespace", "CustomResourceDefinition")}


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


@pytest.mark.parametrize("components", [[], *([name] for name in sorted(COMPONENTS)), sorted(COMPONENTS)])
def test_chart_renders_the_same_objects(components: list[str]) -> None:
    values = {VALUE_SWITCHES.get(name, name): {"enabled": True, "webhookSources": []} for name in components}
    assert with_sorted_volumes(by_key(render_chart("target", values))) == with_sorted_volumes(
        expected_objects(components)
    )


def test_webhook_sources_are_limited() -> None:
    sources = [{"ipBlock": {"cidr": "192.0.2.0/28"}}]
    objects = by_key(render_chart("target", {"networkPolicy": {"enabled": True, "webhookSources": sources}}))
    (expected,) = [
        obj
        for obj in render(namespace="target", components=["network-policy"], api_servers=["192.0.2.0/28"])
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
    assert pod["tolerations"] == values["tolerations"]
    config_map = objects["ConfigMap", "target", "codeflare-operator-config"]
    assert yaml.safe_load(config_map["data"]["config.yaml"]) == config


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
        [helm, "template", "release", str(CHART), "--namespace", "target"], capture_output=True, text=True, check=True
    )
    objects = [obj for obj in yaml.safe_load_all(result.stdout) if obj]
    assert with_sorted_volumes(by_key(objects)) == with_sorted_volumes(expected_objects([]))
