"""Tests of the documentation: links have targets, make targets exist, and kubectl commands are not ambiguous."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test.support.manifests import make_targets

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "cfo" / "console" / "new" / "template" / "Makefile.tmpl"
"""The Makefile of a project that `cfo new` writes, whose targets the pages for operator authors name."""

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("envtest/*.md"), *ROOT.glob("envtest/docs/*.md")]
)
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([\w-]*))?\)")


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub generates from the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page: Path) -> None:
    for name, anchor in _LINK.findall(page.read_text()):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {name}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {name}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    text = page.read_text()
    named = {*re.findall(r"`make ([a-z][a-z0-9-]*)", text), *re.findall(r"^make ([a-z][a-z0-9-]*)", text, re.MULTILINE)}
    known = make_targets() | make_targets(TEMPLATE)
    assert named <= known, named - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_kubectl_commands_name_the_group_of_stacks(page: Path) -> None:
    """Two groups serve InferenceStacks, and without a group kubectl uses one of them."""
    commands = re.findall(r"(?:^|`)(kubectl [^`\n]*)", page.read_text(), re.MULTILINE)
    ambiguous = [command for command in commands if re.search(r"[ ,]inferencestacks?(?![\w.])", command)]
    assert [command for command in ambiguous if command != "kubectl get inferencestacks"] == []
