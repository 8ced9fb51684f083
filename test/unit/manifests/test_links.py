"""Tests of the documentation: links, paths, modules and make targets exist, and kubectl commands are not ambiguous."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from cfo.manifests.stack import platforms
from test.support.manifests import make_targets

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "cfo" / "console" / "new" / "template" / "Makefile.tmpl"
"""The Makefile of a project that `cfo new` writes, whose targets the pages for operator authors name."""

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("envtest/*.md"),
        *ROOT.glob("envtest/docs/*.md"),
        *ROOT.glob("handlers/*.md"),
        *ROOT.glob("handlers/*/*.md"),
    ]
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
def test_tables_begin_after_an_empty_line_with_a_heading(page: Path) -> None:
    """Otherwise their rows become text, as after an empty line within a table."""
    text = re.sub(r"^```.*?^```|^<!--.*?-->$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = text.splitlines()
    first = [
        index
        for index, line in enumerate(lines)
        if line.startswith("|") and not lines[index - 1].startswith("|")
    ]
    headings = [
        index
        for index in first
        if re.fullmatch(r"\|[-:|]+\|", lines[index + 1]) and not lines[index - 1]
    ]
    assert [lines[index] for index in first if index not in headings] == []


SOURCES = sorted(
    path
    for root in ("cfo", "envtest/src", "handlers/src", "hack", "test")
    for path in (ROOT / root).rglob("*.py")
)
_PIP = re.compile(r"pip install [^`#\n]*")
_PUBLISHED = re.compile(r"(?<![\w./-])(?:cfo|envtest|cfo-handlers)(?:\[\w+\])?(?![\w./-])")


def test_pip_does_not_install_this_project_from_the_index() -> None:
    """The index has an unrelated package of the name cfo, and none with the names of the others."""
    commands = [
        (path.name, command)
        for path in (*PAGES, *SOURCES)
        for command in _PIP.findall(path.read_text())
    ]
    assert ("README.md", "pip install ./envtest pytest pytest-asyncio") in commands
    wrong = {(name, command) for name, command in commands if _PUBLISHED.search(command)}
    # the comment and this test name what must not be typed
    assert {
        each for each in wrong if each[0] != "execution.py" and each[0] != "test_links.py"
    } == set()


_PATH = re.compile(r"`((?:cfo|config|deploy|docs|envtest|examples|hack|handlers|test)/[\w./*-]+)`")
_NAME = re.compile(r"(?<=[`~])(?:cfo|cfo_handlers|envtest|hack)(?:\.[A-Za-z_]\w*)+(?=[`(])")
_SIBLING = re.compile(r":mod:`(\.[a-z_.]+)`")
NO_PATHS = {"envtest/admission", "docs/install.html"}
"""Paths that are examples: the area of a commit, and a page of the site."""
NO_NAMES = {
    "cfo.envtest",
    "cfo.runtime.handlers",
    "cfo.kubeconfig",
    "envtest.Environment",
    "envtest.log",
}
"""Modules of earlier versions in the changelogs, files, and a type of controller-runtime."""


@pytest.mark.parametrize(
    "folder", ["", "cfo", "docs", "envtest", "examples", "hack", "handlers", "test"]
)
def test_named_paths_exist(folder: str) -> None:
    """Paths in backticks exist; those of other distributions are relative to their folders, too."""
    pages = [page for page in PAGES if page.relative_to(ROOT).parts[0] == (folder or page.name)]
    sources = [path for path in SOURCES if path.relative_to(ROOT).parts[0] == folder]
    roots = [ROOT, ROOT / folder] if folder in ("envtest", "handlers") else [ROOT]
    missing = {
        (str(path.relative_to(ROOT)), name)
        for path in (*pages, *sources)
        for name in set(_PATH.findall(path.read_text())) - NO_PATHS
        if not any(any(root.glob(name.rstrip("/"))) for root in roots)
    }
    assert {each for each in missing if not re.search("KIND|NAME", each[1])} == set()


@cache
def is_defined(name: str) -> bool:
    """Return whether a module, or a name in one, exists."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            fields = getattr(found, "__annotations__", {}), getattr(found, "model_fields", {})
            if not hasattr(found, attribute) and not any(attribute in names for names in fields):
                return False
            found = getattr(found, attribute, None)
        return True
    return False


def test_named_modules_exist() -> None:
    """Names in backticks such as ``cfo.runtime.Client`` exist, and modules such as ``.cache`` in docstrings."""
    named = {
        (path, name) for path in (*PAGES, *SOURCES) for name in _NAME.findall(path.read_text())
    }
    missing = {(str(path.relative_to(ROOT)), name) for path, name in named if name not in NO_NAMES}
    assert {each for each in missing if not is_defined(each[1])} == set()
    siblings = {(path, name) for path in SOURCES for name in _SIBLING.findall(path.read_text())}
    folders = {(path, path.parent.joinpath(*name[1:].split("."))) for path, name in siblings}
    missing_files = {
        str(each)
        for _, each in folders
        if not each.is_dir() and not each.with_suffix(".py").is_file()
    }
    assert missing_files == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    text = page.read_text()
    named = {
        *re.findall(r"`make ([a-z][a-z0-9-]*)", text),
        *re.findall(r"^make ([a-z][a-z0-9-]*)", text, re.MULTILINE),
    }
    known = make_targets() | make_targets(TEMPLATE)
    assert named <= known, named - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_kubectl_commands_name_the_group_of_stacks(page: Path) -> None:
    """Two groups serve InferenceStacks, and without a group kubectl uses one of them."""
    commands = re.findall(r"(?:^|`)(kubectl [^`\n]*)", page.read_text(), re.MULTILINE)
    ambiguous = [
        command for command in commands if re.search(r"[ ,]inferencestacks?(?![\w.])", command)
    ]
    assert [command for command in ambiguous if command != "kubectl get inferencestacks"] == []


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "docs/compatibility.md"])
def test_pages_name_the_versions_of_kubernetes_that_doctor_supports(page: str) -> None:
    versions = dict(platforms())["Kubernetes"]
    assert re.search(rf"Kubernetes (\| )?{re.escape(versions)}", (ROOT / page).read_text()), (
        versions
    )
