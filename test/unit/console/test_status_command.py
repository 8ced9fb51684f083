"""The notes of ``cfo status`` about what it does not show."""

from __future__ import annotations

import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.errors import InvalidInput
from cfo.console.status_command import Session, _notes, _select
from cfo.features import all_views
from cfo.runtime import Cache, ClientConfig, RESTMapper, Transport
from cfo.summaries.overview import Overview


def test_notes_name_kinds_with_objects_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Transport(ClientConfig(server="https://127.0.0.1:1"))
    overview = Overview(Cache(transport, RESTMapper(transport)), all_views(), related=())
    session = Session(overview, (), {}, {})
    assert not any(line.startswith("not complete") for line in _notes(session, None))
    monkeypatch.setattr(overview, "left_out", lambda: {RAY_CLUSTER: "2 in namespace ns"})
    assert "not complete: RayCluster: 2 in namespace ns" in _notes(session, None)


@pytest.mark.parametrize(
    ("targets", "suggestion"),
    [
        (("raycluster", "good"), "raycluster/good"),
        (("raycluster", "good", "bad"), "raycluster/good"),
        (("raycluster/good", "raycluster/bad"), "raycluster/good"),
    ],
)
def test_name_after_a_space_is_refused_with_the_form_that_works(
    targets: tuple[str, ...], suggestion: str
) -> None:
    with pytest.raises(
        InvalidInput, match=rf"must be one KIND or KIND/NAME, such as {suggestion}$"
    ):
        _select(all_views(), targets)


@pytest.mark.parametrize(
    ("kind", "suggestion"),
    [
        ("raycluste", "; did you mean raycluster?"),
        ("AppWraper", "; did you mean appwrapper?"),
        ("fluxjobz", "; did you mean fluxjob?"),
        ("nodes", ""),
        ("r" * 100_000, ""),
    ],
)
def test_unknown_kind_is_refused_with_the_most_similar_one(kind: str, suggestion: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        _select(all_views(), [kind])
    (problem,) = refused.value.problems
    assert "must be KIND or KIND/NAME, and KIND one of raycluster, " in problem
    assert problem.endswith(f"minicluster, inferencestack{suggestion}")


@pytest.mark.parametrize(
    "name", ["aw", "AppWrapper", "appwrappers", "appwrapper.workload.codeflare.dev"]
)
def test_kind_has_the_names_that_kubectl_accepts(name: str) -> None:
    views, _ = _select(all_views(), [name])
    assert [view.gvk.kind for view in views] == ["AppWrapper"]
