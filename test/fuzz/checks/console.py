"""Commands that read a cluster: objects of tenants neither end them, nor slow them down, nor control the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from click.testing import CliRunner
from hypothesis import strategies as st

from cfo.checks import raycluster
from cfo.checks.appwrapper import check_kueue
from cfo.checks.components import InstalledCRD
from cfo.checks.findings import Finding
from cfo.checks.raycluster import Admission
from cfo.config.document import extract_document, parse
from cfo.config.section import ConfigurationError
from cfo.console.doctor import checks
from cfo.console.doctor.facts import Installation, WebhookConfigurationFacts
from cfo.console.doctor.report import document, lines
from cfo.console.errors import echo
from cfo.console.migrate.raycluster.obstacles import find_obstacles
from cfo.console.migrate.raycluster.planning import Options, plan_safely
from cfo.console.migrate.raycluster.steps import plan_lines
from cfo.runtime import NamespacedName
from test.fuzz.bounds import assert_readable, assert_small, limited_time
from test.fuzz.mutations import HOSTILE, mutated
from test.fuzz.seeds import Corpus
from test.fuzz.stored_objects import as_stored
from test.support.migration import TO_KUBERAY, observed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAX_TEXT = 262_144

STRINGS = st.sampled_from(
    [
        *HOSTILE,
        "",
        "x",
        "v1.2.3",
        "quay.io/x/y:v1.2.3@sha256:0",
        "2026-01-01T00:00:00Z",
        "2026-01-01",
    ]
)
"""What a tenant can write into a field for which the API server only requires a string."""

TEMPLATES = st.builds(
    lambda image, arguments: {
        "spec": {"containers": [{"name": "c", "image": image, "args": arguments}]}
    },
    STRINGS,
    st.lists(STRINGS, max_size=2),
)
DEPLOYMENTS = st.builds(
    lambda template, replicas: {
        "metadata": {"name": "codeflare-operator-manager", "namespace": "tenant"},
        "spec": {"replicas": replicas, "template": template},
        "status": {"readyReplicas": replicas, "replicas": replicas},
    },
    TEMPLATES,
    st.integers(0, 2**31 - 1),
)
TIMES = st.sampled_from(
    [
        "2026-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.000000Z",
        "0001-01-01T00:00:00.000000Z",
        None,
    ]
)
LEASES = st.builds(
    lambda holder, renewed, seconds: {
        "metadata": {"name": "codeflare-operator-lock", "namespace": "tenant"},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds},
    },
    STRINGS,
    TIMES,
    st.sampled_from([None, 1, 2**31 - 1]),
)
CONFIGURATIONS = st.builds(
    lambda name, kind: {"kind": kind, "metadata": {"name": "x"}, "webhooks": [{"name": name}]},
    st.sampled_from(["mraycluster.ray.openshift.ai", "x.codeflare.dev", "a.b.c"]),
    st.sampled_from(["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
)


def check_obstacles(deployments: Any, leases: Any, configurations: Any = ()) -> None:
    with limited_time():
        found = find_obstacles(deployments, leases, configurations, NOW)
    assert_readable(_printed(found), MAX_TEXT)


CLUSTERS = mutated(Corpus(kind="RayCluster"), 4)


def check_migration(cluster: Any, options: Options = TO_KUBERAY) -> None:
    stored = as_stored(cluster)
    if stored is None:
        return
    state = observed(stored)
    before = json.dumps([state.cluster, list(state.children)])
    with limited_time():
        plan = plan_safely(state, options)
        lines = list(plan_lines(plan))
        assert_readable(_printed(lines), MAX_TEXT)
    assert sum(map(len, lines)) <= 8 * len(before) + 100_000
    assert json.dumps([state.cluster, list(state.children)]) == before, "an argument was modified"


PODS = st.builds(
    lambda template, started: {
        **template,
        "status": {"containerStatuses": [{"state": {"running": {"startedAt": started}}}]},
    },
    TEMPLATES,
    st.sampled_from(["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
)
CONFIG_MAPS = st.builds(
    lambda text, changed: {
        "metadata": {
            "name": "c",
            "managedFields": [{"manager": "m", "time": changed}],
            "creationTimestamp": changed,
        },
        "data": {"config.yaml": text},
    },
    STRINGS,
    st.sampled_from(["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
)


def check_doctor(deployment: Any, pods: Any, config_map: Any, text: str) -> None:
    try:
        parsed: Any = parse(extract_document(config_map["data"]["config.yaml"]))
    except ConfigurationError as error:
        parsed = error
    installation = Installation(
        "tenant", config_map, parsed, deployment=deployment, pods=tuple(pods)
    )
    operators = [(NamespacedName("tenant", "x"), text)]
    configuration = installation.configuration
    webhooks = [
        WebhookConfigurationFacts(
            name=text[:253], exists=True, services={NamespacedName("a", text): 1}
        )
    ]
    examinations: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: checks.check_operator(installation, webhooks, NOW),
        lambda: checks.check_version(installation, [], "0.1.0"),
        lambda: checks.check_configuration(installation, NOW),
        lambda: checks.check_webhooks(webhooks, NOW),
        lambda: checks.check_kubernetes(text, "1.36"),
        lambda: checks.check_certificate(NamespacedName("a", "b"), text.encode(), webhooks, NOW),
        lambda: check_kueue(
            InstalledCRD(exists=True, established=True, served=(text,)),
            operators,
            configuration,
            "0.19.2",
        ),
        lambda: raycluster.check_kuberay(
            InstalledCRD(exists=True, established=True, served=(text,)),
            operators,
            configuration,
            "1.7.0",
        ),
        lambda: raycluster.check_domain(text, configuration),
        lambda: raycluster.check_admission(Admission(served=True, error=text), configuration),
    )
    findings: list[Finding] = []
    for examination in examinations:
        with limited_time():
            findings += examination()
    assert_readable(_printed(lines({"any": findings})), MAX_TEXT)
    assert_small(document({"any": findings}), 8 << 20)


def _printed(lines: Iterable[str]) -> list[str]:
    """Return what a command prints for ``lines``, of which each is one line."""
    found = list(lines)
    with CliRunner().isolation(color=True) as (output, *_):
        for line in found:
            echo(line)
    printed = output.getvalue().decode().splitlines()
    assert len(printed) == len(found), "a string added a line"
    return printed
