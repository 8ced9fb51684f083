"""The pages ``/statusz``, ``/flagz`` and those below ``/debug``."""

from __future__ import annotations

import re

import pytest

from envtest.apimachinery.errors import StatusError
from envtest.configuration.kubernetes_version import LATEST
from envtest.pages.zpages import ServerPages

PAGES = ServerPages(LATEST, {"b": "2", "a": "1"})


def test_status_names_the_version_and_the_uptime() -> None:
    response = PAGES.respond("/statusz", "*/*")
    assert response is not None
    assert isinstance(response.body, bytes)
    lines = response.body.decode().splitlines()
    assert "kube-apiserver statusz" in lines
    assert any(re.fullmatch(r"Up: \d+ hr \d\d min \d\d sec", line) for line in lines)
    assert "Emulation version: 1.36.0" in lines


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/*", "application/json;q=0.1, text/plain;q=0.9"]
)
def test_flags_are_sorted(accept: str) -> None:
    response = PAGES.respond("/flagz", accept)
    assert response is not None
    assert isinstance(response.body, bytes)
    assert response.body.endswith(b"\na=1\nb=2\n")


def test_json_without_parameters_is_not_acceptable() -> None:
    with pytest.raises(StatusError, match="only the following media types are accepted") as raised:
        PAGES.respond("/statusz", "application/json")
    assert raised.value.code == 406


def test_other_paths_are_not_served() -> None:
    assert PAGES.respond("/statusz/x", "") is None


def test_pages_of_debugging() -> None:
    profiles = PAGES.respond("/debug/pprof", "")
    assert profiles is not None
    assert (profiles.code, profiles.headers["Location"]) == (302, "/debug/pprof/")
    levels = PAGES.respond("/debug/api_priority_and_fairness/dump_priority_levels", "")
    assert levels is not None
    assert levels.code == 200
    assert PAGES.respond("/debug/api_priority_and_fairness/dump", "") is None
