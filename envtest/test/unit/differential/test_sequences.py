"""The generator of random requests, and what its comparison ignores."""

from __future__ import annotations

from itertools import islice

import pytest

from test.differential.__main__ import sequences
from test.differential.comparison import differences
from test.differential.normal_form import Normalizer
from test.differential.samples import builtin_samples


@pytest.mark.parametrize("kinds", ["builtin", "custom"])
def test_a_seed_repeats_its_sequences(kinds: str) -> None:
    first = list(islice(sequences(5, kinds, ""), 80))
    second = list(islice(sequences(5, kinds, ""), 80))
    other = list(islice(sequences(6, kinds, ""), 80))
    assert [str(step) for each in first for step in each.steps] == [
        str(step) for each in second for step in each.steps
    ]
    assert first != other


def test_every_kind_that_can_be_created_has_a_sample() -> None:
    from envtest.builtins.catalog import all_resources

    sampled = {(each.root.rpartition("/")[0], each.plural) for each in builtin_samples()}
    creatable = {
        (f"/apis/{each.group}" if each.group else "/api", each.plural)
        for each in all_resources()
        if "create" in each.verbs
    }
    assert creatable - sampled == {("/api", "bindings")}


def test_values_that_differ_by_server_are_replaced_and_equal_ones_stay_equal() -> None:
    def answer(uid: str, version: str) -> dict[str, object]:
        metadata = {
            "uid": uid,
            "resourceVersion": version,
            "creationTimestamp": "2026-05-06T07:08:09Z",
        }
        return {"metadata": metadata, "status": {"message": f"uid {uid}"}}

    ours = Normalizer().body(answer("00000000-0000-4000-8000-000000000001", "5"))
    real = Normalizer().body(answer("00000000-0000-4000-8000-000000000002", "7"))
    assert ours == real
    assert ours["status"]["message"] == f"uid {ours['metadata']['uid']}"


def test_differences_name_the_path_and_both_values() -> None:
    expected = {"code": 1, "items": [{"a": "b"}], "old": 1}
    actual = {"code": 2, "items": [{"a": "c"}], "new": 1}
    assert list(differences(expected, actual)) == [
        ".code: expected 1, got 2",
        '.items[0].a: expected "b", got "c"',
        ".old: missing, expected 1",
        ".new: unexpected 1",
    ]


def test_the_comparison_skips_errors_next_to_undeclared_fields() -> None:
    head = "failed to create typed patch object (/a; g/v1, Kind=K): "
    single = f"{head}.spec.parts: field not declared in schema"
    both = (
        f"{head}errors:\n  .spec.parts: field not declared in schema\n"
        "  .spec.size: expected numeric (int or float), got string"
    )
    other = f"{head}.spec.size: expected numeric (int or float), got string"

    def normal(message: str) -> dict[str, object]:
        body: dict[str, object] = Normalizer().body({"kind": "Status", "message": message})
        return body

    assert normal(single) == normal(both)
    assert normal(single) != normal(other)
