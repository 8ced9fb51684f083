"""Commands that users paste into a shell: JSON in them is quoted, because a shell removes its quotation marks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "envtest").glob("*.md"),
        *(ROOT / "envtest" / "docs").rglob("*.md"),
        *(ROOT / "handlers").glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "test").rglob("*.md"),
    }
)
SOURCES = sorted(
    {
        *(ROOT / "cfo").rglob("*.py"),
        *(ROOT / "cfo").rglob("*.yaml"),
        *(ROOT / "envtest" / "src").rglob("*.py"),
        *(ROOT / "handlers" / "src").rglob("*.py"),
    }
)
_JSON = re.compile(r"""\{\s*"|\[["{\[]""")
_PROGRAM = re.compile(r"\b(?:kubectl|oc|curl|helm|cfo) ")
_PROGRAM_IN_SOURCE = re.compile(r"\b(?:kubectl|oc|curl|helm|cfo)[ \"']")
"""What is in each module with a command, also if a string ends after the program. Others are not parsed."""


def unquoted_json(command: str) -> str:
    """Return ``command`` from the first JSON outside the quotation marks of the shell; empty if there is none."""
    quote = ""
    position = 0
    while position < len(command):
        character = command[position]
        if character == "\\" and quote != "'":
            position += 1
        elif quote:
            if character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif _JSON.match(command, position):
            return command[position:]
        position += 1
    return ""


def commands_of_page(text: str) -> Iterator[str]:
    """Yield the shell examples, without comments and documents, and the commands in the text."""
    for block in re.findall(
        r"^ *```(?:sh|bash|console)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE
    ):
        without_documents = re.sub(
            r"<<'?(\w+)'?.*?^\s*\1$", "", block, flags=re.DOTALL | re.MULTILINE
        )
        yield re.sub(r"(^|\s)#.*", "", without_documents)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`([^`]+)`", prose):
        if _PROGRAM.match(code):
            yield code


def commands_of_source(path: Path) -> Iterator[str]:
    """Yield the commands in the strings of a module, or in the values of a YAML file."""
    texts = strings_of(path) if path.suffix == ".py" else iter(path.read_text().splitlines())
    for text in texts:
        matched = _PROGRAM.search(text)
        if matched is not None:
            yield text[matched.start() :]


def strings_of(path: Path) -> Iterator[str]:
    """Yield all strings of a module that may have commands, with ``x`` in place of expressions."""
    source = path.read_text()
    if not _PROGRAM_IN_SOURCE.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
            yield "".join(map(str, parts))


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ('kubectl patch a b -p {"a":1}', '{"a":1}'),
        ('kubectl patch a b -p={"a": 1}', '{"a": 1}'),
        ('kubectl patch a b -p [{"op":"remove"}]', '[{"op":"remove"}]'),
        ("kubectl patch a b -p '{\"a\":1}'", ""),
        ('kubectl patch a b -p "{\\"a\\":1}"', ""),
        ("kubectl get a -o jsonpath={.items[*].metadata.name}", ""),
    ],
)
def test_unquoted_json_is_found(command: str, found: str) -> None:
    assert unquoted_json(command) == found


def test_documented_commands_quote_their_json() -> None:
    checked = 0
    for page in PAGES:
        for command in commands_of_page(page.read_text()):
            checked += 1
            assert unquoted_json(command) == "", (page, command)
    assert checked > 100


def test_printed_commands_quote_their_json() -> None:
    checked = 0
    for source in SOURCES:
        for command in commands_of_source(source):
            checked += 1
            assert unquoted_json(command) == "", (source, command)
    assert checked > 50
