"""Compares what the scripts of example MiniClusters do with recordings: commands, environment and working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfo.runtime.objects.unstructured import Object, name_of
from test.support.flux_scripts import examples, load, record


@pytest.mark.parametrize("cluster", [pytest.param(item, id=name_of(item)) for item in examples()])
def test_scripts_do_what_was_recorded(cluster: Object, tmp_path: Path) -> None:
    assert record(cluster, tmp_path) == load()[name_of(cluster)]["runs"]
