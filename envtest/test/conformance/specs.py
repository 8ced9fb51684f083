"""The list of conformance specs with their results, ``specs.txt``, and the tests that send their requests.

Uses only the standard library: ``make manifests`` reads the list with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

__all__ = [
    "EMBEDDED",
    "FILE",
    "NOT_RUN",
    "PASSED",
    "PLAYED",
    "REAL",
    "Spec",
    "focus",
    "parse",
    "plays",
    "render",
    "without_tags",
]

FILE = Path(__file__).parent / "specs.txt"
EMBEDDED = "envtest"
REAL = "kube-apiserver"
PASSED = "passed"
NOT_RUN = "not run"
RESULTS = (PASSED, "failed", "timeout", "needs nodes", "absent", NOT_RUN)
"""The results of a spec; one that needs what a control plane does not have is not run, and has this as its result."""

HEAD = """\
# The conformance specs of Kubernetes 1.36, without the tags after the first, which move between releases.
# Written by `make conformance` with `--results FILE --write` from its results.
# Not indented: the result on envtest, and the result on etcd, kube-apiserver and kube-controller-manager without nodes.
"""

T = TypeVar("T", bound=Callable[..., object])

PLAYED: dict[str, str] = {}
"""The specs whose requests tests send, without ``[sig-...]``, and the name of the test; set by :func:`plays`."""


class Spec(NamedTuple):
    """A conformance spec: its name without tags, and its results, such as ``passed`` or ``needs mounted volumes``."""

    name: str
    envtest: str
    real: str

    @property
    def short_name(self) -> str:
        """The name without ``[sig-...]``."""
        return self.name.partition("] ")[2]

    @property
    def passes(self) -> bool:
        """Whether the spec passed on envtest."""
        return self.envtest == PASSED

    @property
    def can_run(self) -> bool:
        """Whether envtest has what the spec needs."""
        return self.envtest in RESULTS


def parse(text: str) -> list[Spec]:
    """Return the specs of ``specs.txt``. Raises ValueError for a line that is neither results nor a spec."""
    specs: dict[str, Spec] = {}
    results: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        name = line.strip()
        if not name or line.startswith("#"):
            continue
        if not line.startswith(" "):
            results = name.split(" / ")
            if len(results) != 2 or not all(map(_is_result, results)):
                raise ValueError(f"line {number}: {name!r}: must be 'RESULT / RESULT'")
        elif not results or not re.match(r"\[sig-[a-z-]+] \S", name) or without_tags(name) != name:
            raise ValueError(
                f"line {number}: {name!r}: must be '[sig-...] NAME' without tags, below results"
            )
        elif name in specs:
            raise ValueError(f"line {number}: {name!r}: is in the list twice")
        else:
            specs[name] = Spec(name, *results)
    return list(specs.values())


def _is_result(text: str) -> bool:
    return text in RESULTS or text.startswith("needs ")


def render(specs: Iterable[Spec]) -> str:
    """Return the content of ``specs.txt``: first the specs that passed on both, last those that cannot run."""
    groups: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        groups.setdefault((spec.envtest, spec.real), []).append(spec.name)
    parts = [HEAD]
    for results in sorted(groups, key=_order):
        names = "".join(f"  {name}\n" for name in sorted(groups[results]))
        parts.append(f"{' / '.join(results)}\n{names}")
    return "\n".join(parts)


def _order(results: tuple[str, str]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for result in results:
        position = RESULTS.index(result) if result in RESULTS else len(RESULTS)
        found.append((position, result))
    return found


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
