"""The list of conformance specs, ``specs.txt``, and the tests that send their requests.

Uses only the standard library: ``make manifests`` reads the list with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

__all__ = ["FILE", "PLAYED", "Spec", "focus", "parse", "plays", "without_tags"]

FILE = Path(__file__).parent / "specs.txt"
PASSES = "passes"

T = TypeVar("T", bound=Callable[..., object])

PLAYED: dict[str, str] = {}
"""The specs whose requests tests send, without ``[sig-...]``, and the name of the test; set by :func:`plays`."""


class Spec(NamedTuple):
    """A conformance spec: its name without tags, and its state, such as ``needs volumes that are mounted``."""

    name: str
    state: str

    @property
    def short_name(self) -> str:
        """The name without ``[sig-...]``."""
        return self.name.partition("] ")[2]

    @property
    def passes(self) -> bool:
        """Whether the spec is expected to pass."""
        return self.state == PASSES


def parse(text: str) -> list[Spec]:
    """Return the specs of ``specs.txt``. Raises ValueError for a line that is neither a state nor a spec."""
    specs: dict[str, Spec] = {}
    state = ""
    for number, line in enumerate(text.splitlines(), 1):
        name = line.strip()
        if not name or line.startswith("#"):
            continue
        if not line.startswith(" "):
            state = name
        elif not state or not re.match(r"\[sig-[a-z-]+] \S", name) or without_tags(name) != name:
            raise ValueError(
                f"line {number}: {name!r}: must be '[sig-...] NAME' without tags, below a state"
            )
        elif name in specs:
            raise ValueError(f"line {number}: {name!r}: is in the list twice")
        else:
            specs[name] = Spec(name, state)
    return list(specs.values())


def without_tags(name: str) -> str:
    """Return the full name of a spec without tags such as ``[Serial]``, which move between releases of Kubernetes."""
    sig, end, rest = name.partition("]")
    return sig + end + re.sub(r" +\[[^]]*]", "", rest)


def focus(spec: Spec) -> str:
    """Return a regular expression for Ginkgo's ``--ginkgo.focus`` that matches this spec only, with any tags."""
    words = map(re.escape, spec.name.split(" "))
    return r"( \[[^]]*\])* ".join(words) + r"( \[[^]]*\])*$"


def plays(*names: str) -> Callable[[T], T]:
    """Register a test for the specs (without ``[sig-...]``) whose requests it sends, in JSON and in protobuf."""

    def register(test: T) -> T:
        for name in names:
            assert name not in PLAYED, f"{name}: {PLAYED[name]} plays it already"
            PLAYED[name] = getattr(test, "__name__", str(test))
        return test

    return register
