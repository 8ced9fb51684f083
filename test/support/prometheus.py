"""Evaluates alerts with Prometheus's own engine (``promtool test rules``) on what an operator exposes.

A test scrapes the metrics before and after it breaks something. The samples become the input series of a unit test of
rules: the first scrape lasts ten minutes, the second one two hours.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cfo.operator import METRICS_SERVICE
from test.support.manifests import ALERTS_NAMESPACE, alerts

PROMTOOL = shutil.which("promtool")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)

_BEFORE_MINUTES = 10
_AFTER_MINUTES = 120


class Change(NamedTuple):
    """A change of what an operator exposes.

    ``before`` and ``after`` are scrapes in the text format; an empty one is a failed scrape. ``now`` is the time, in
    seconds since the epoch, at which the series begin: times in metrics are shifted by it, since promtool begins at 0.
    Each of ``replicas`` exposes the same. Another operator, in another namespace, exposes ``before`` all the time.
    """

    before: str
    after: str
    now: float = 0.0
    replicas: int = 1


class Pod(NamedTuple):
    """A pod of an operator: the namespace, and a number among all pods."""

    namespace: str
    number: int


def firing_alerts(
    directory: Path, changes: Mapping[str, Change]
) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return for each change the alerts that fire two hours after it, by name, each with its labels.

    One process evaluates all changes, because its start takes most of the time.
    """
    rules = directory / "rules.json"
    rules.write_text(json.dumps({"groups": [{"name": "operator", "rules": alerts()}]}))
    names = {alert["alert"] for alert in alerts()}
    end = f"{_BEFORE_MINUTES + _AFTER_MINUTES}m"
    expected = [{"eval_time": end, "alertname": name, "exp_alerts": []} for name in sorted(names)]
    tests = [
        {
            "name": title,
            "interval": "1m",
            "input_series": _all_series(change),
            "alert_rule_test": expected,
        }
        for title, change in changes.items()
    ]
    test = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    unit_test = directory / "test.json"
    unit_test.write_text(json.dumps(test))
    assert PROMTOOL is not None
    result = subprocess.run(
        [PROMTOOL, "test", "rules", str(unit_test)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return _unexpected(result.stdout + result.stderr, changes.keys(), names)


def _all_series(change: Change) -> list[dict[str, str]]:
    """Return the series of all replicas, and of the other operator."""
    pods = [Pod(ALERTS_NAMESPACE, replica) for replica in range(change.replicas)]
    series = [item for pod in pods for item in _series(change, pod)]
    unchanged = change._replace(after=change.before)
    return [*series, *_series(unchanged, Pod("other", change.replicas))]


def _series(change: Change, pod: Pod) -> list[dict[str, str]]:
    first, second = (_samples(scrape, change.now, pod) for scrape in (change.before, change.after))
    series = []
    for name in first.keys() | second.keys():
        old, new = first.get(name), second.get(name)
        start = "_" if old is None else f"{old!r}"
        end = "_" if new is None else f"{new!r}"
        grows = old is not None and new is not None and new > old and _is_counter(name)
        rise = (
            f"{old!r}+{new - old!r}x{_AFTER_MINUTES}"
            if grows and old is not None and new is not None
            else ""
        )
        values = f"{start}x{_BEFORE_MINUTES} {rise or f'{end}x{_AFTER_MINUTES}'}"
        series.append({"series": name, "values": values})
    return series


def _is_counter(series: str) -> bool:
    return series.partition("{")[0].endswith(("_total", "_count", "_bucket", "_sum"))


def _samples(text: str, now: float, pod: Pod) -> dict[str, float]:
    if not text:
        return {_identity("up", {}, pod): 0.0}
    found = {_identity("up", {}, pod): 1.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            value = (
                sample.value - now if sample.name.endswith("_timestamp_seconds") else sample.value
            )
            found[_identity(sample.name, sample.labels, pod)] = value
    return found


def _identity(name: str, labels: dict[str, str], pod: Pod) -> str:
    target = {
        "job": METRICS_SERVICE,
        "namespace": pod.namespace,
        "instance": f"10.0.0.{pod.number}:8080",
        "pod": f"operator-{pod.number}",
    }
    all_labels = {**target, **labels}
    return (
        name
        + "{"
        + ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(all_labels.items()))
        + "}"
    )


def _unexpected(
    output: str, titles: Collection[str], names: set[str]
) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return, by the title of the change, the alerts that promtool reports although none was expected."""
    firing: dict[str, dict[str, list[dict[str, str]]]] = {title: {} for title in titles}
    title = name = ""
    for line in output.splitlines():
        text = line.strip()
        if text.startswith("name:"):
            title = text.removeprefix("name:").removesuffix(",").strip()
            assert title in firing, output
        elif text.startswith("alertname:"):
            name = text.removeprefix("alertname:").split(",")[0].strip()
            assert name in names, output
        elif text.startswith("Labels:{"):
            firing[title].setdefault(name, []).append(dict(_LABEL.findall(text)))
    assert any(firing.values()) or "SUCCESS" in output, output
    return firing
