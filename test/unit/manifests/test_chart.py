"""The Helm chart renders what ``cfo manifests`` prints.

Helm is not at hand everywhere; the few template expressions that the chart has are read by the small renderer below,
which refuses any other, and by Helm itself where there is one.
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
from test.support.manifests import by_key

CHART = Path(__file__).parents[3] / "charts" / "codeflare-operator"
TOKEN = re.compile(r"(\s*)\{\{-\s(.*?)\s\}\}|\{\{\s(.*?)\s\}\}", re.DOTALL)
SWITCHES = {"certmanager": "certManager", "network-policy": "networkPolicy", "prometheus": "prometheus"}


class Renderer:
    """Renders the expressions of this chart; an unknown one is an error."""

    def __init__(self, values: dict[str, Any], namespace: str) -> None:
        self.values = values
        self.namespace = namespace

    def value(self, expression: str, dot: Any) -> Any:
        if expression == ".":
            return dot
        if expression == ".Release.Namespace":
            return self.namespace
        if expression == "`{{`":
            return "{{"
        if expression == '.Values.image.tag | default (print "v" .Chart.AppVersion)':
            return self.values["image"]["tag"] or f"v{__version__}"
        found = self.values
        assert re.fullmatch(r"\.Values(\.\w+)+", expression), expression
        for part in expression.split(".")[2:]:
            found = found[part]
        return found

    def render(self, text: str) -> str:
        out, shown, dots = [], [True], [None]
        position = 0
        for token in TOKEN.finditer(text):
            if all(shown):
                out.append(text[position : token.start()])
            position = token.end()
            expression = token[2] or token[3]
            if (block := re.fullmatch(r"(if|with) (\S+)", expression)) is not None:
                found = self.value(block[2], dots[-1])
                shown.append(bool(found))
                dots.append(found if block[1] == "with" else dots[-1])
            elif expression == "end":
                shown.pop()
                dots.pop()
            elif (dumped := re.fullmatch(r"toYaml (\S+) \| nindent (\d+)", expression)) is not None:
                body = yaml.safe_dump(self.value(dumped[1], dots[-1]), sort_keys=False).splitlines()
                if all(shown):
                    out += [f"\n{' ' * int(dumped[2])}{line}" for line in body]
            elif all(shown):
                out.append(str(self.value(expression, dots[-1])))
        out.append(text[position:])
        assert len(shown) == 1
        return "".join(out)


def rendered(namespace: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    renderer = Renderer({**defaults, **values}, namespace)
    texts = [renderer.render(path.read_text()) for path in sorted((CHART / "templates").glob("*.yaml"))]
    return [obj for text in texts for obj in yaml.safe_load_all(text) if obj]


def expected(components: list[str]) -> dict[tuple[str, str, str], dict[str, Any]]:
    objects = by_key(render(namespace="there", components=components))
    return {key: obj for key, obj in objects.items() if key[0] not in ("Namespace", "CustomResourceDefinition")}


def normal(objects: dict[tuple[str, str, str], dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The order of volumes means nothing."""
    for (kind, _, _), obj in objects.items():
        if kind == "Deployment":
            pod = obj["spec"]["template"]["spec"]
            pod["volumes"].sort(key=lambda volume: volume["name"])
            pod["containers"][0]["volumeMounts"].sort(key=lambda mount: mount["name"])
    return objects


@pytest.mark.parametrize("components", [[], *([name] for name in sorted(COMPONENTS)), sorted(COMPONENTS)])
def test_the_chart_renders_the_same_objects(components: list[str]) -> None:
    values = {SWITCHES[name]: {"enabled": True} for name in components}
    assert normal(by_key(rendered("there", values))) == normal(expected(components))


def test_values_go_where_they_belong() -> None:
    config = {"kuberay": {"ingressDomain": "apps.test", "rayDashboardOAuthEnabled": False}}
    values = {
        "image": {"repository": "registry.test/cfo", "tag": "v9", "pullPolicy": "Always"},
        "replicas": 1,
        "resources": {"requests": {"cpu": "2"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "config": config,
    }
    found = by_key(rendered("there", values))
    deployment = found["Deployment", "there", "codeflare-operator-manager"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 1
    assert container["image"] == "registry.test/cfo:v9"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {"requests": {"cpu": "2"}}
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == values["tolerations"]
    config_map = found["ConfigMap", "there", "codeflare-operator-config"]
    assert yaml.safe_load(config_map["data"]["config.yaml"]) == config


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert f"{values['image']['repository']}:v{__version__}" == default_image()


def test_helm_agrees() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    done = subprocess.run(
        [helm, "template", "release", str(CHART), "--namespace", "there"], capture_output=True, text=True, check=True
    )
    objects = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    assert normal(by_key(objects)) == normal(expected([]))
