"""Hosts of RayClusters are found at any level of an object, at little cost where there are none."""

from __future__ import annotations

from typing import NoReturn

from cfo.api.reserved_hosts import reserved_host_errors
from cfo.runtime.objects.field import Path


class UnusedPath(Path):
    """A path below which nothing may have an error."""

    def child(self, *names: str) -> NoReturn:
        raise AssertionError(f"a path was created for {names}")

    def index(self, position: int) -> NoReturn:
        raise AssertionError(f"a path was created for item {position}")


def test_paths_of_reserved_hosts_contain_names_and_indexes() -> None:
    rules = [{"host": "a.test"}, {"host": "ray-dashboard-x.test"}, {"hosts": ["a", "RayClient-x"]}]
    value = {"rules": rules, "nested": [[{"hostname": "rayclient-y"}]]}
    errors = reserved_host_errors(value, Path("spec"))
    assert {str(error.field) for error in errors} == {
        "spec.rules[1].host",
        "spec.rules[2].hosts[1]",
        "spec.nested[0][0].hostname",
    }


def test_no_path_is_created_for_allowed_hosts() -> None:
    rules = [{"host": f"{number}.test", "hosts": ["a", "b"]} for number in range(10)]
    assert list(reserved_host_errors({"rules": rules}, UnusedPath("spec"))) == []
