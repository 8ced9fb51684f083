"""Rejects words that ``docs/style.md`` replaces, in all prose of the repository.

    python hack/prose.py [PATH...]

Prose is Markdown without its code blocks, and of Python files comments and all strings (docstrings, log messages,
errors). A line that must keep a word, because Kubernetes or the Go operator use it, ends in ``# prose: keep``.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORDS = {
    r"(?:some|no|any)body(?:'s)?|who(?:so)?ever": "another client, no one / nothing, any user, the owner",
    r"he|him|his": "it, the owner, the user",
    r"tells|told": "reports, logs, notifies; reported, logged, set",
    r"hears? (?:of|from)": "is notified of, watches",
    r"judge(?:s|d)?": "validate, admit",
    r"anew": "again, recreated",
    r"for ever": "forever",
    r"but for": "except",
    r"beside": "alongside, next to",
    r"gives? way": "is replaced",
    r"is no more": "no longer exists, is no longer",
    r"stands? (?:in|for|under|twice|there|here|beside|before|behind|above|below)|stood": "is in, appears, means",
    r"(?:is|are|was|were) gone": "was deleted, does not exist",
    r"(?:may|must) not(?: be)? said": "must not be set",
    r"looks? (?:after|anew)": "manages, checks again",
    r"made anew": "recreated",
}
PATTERN = re.compile(r"\b(?:" + "|".join(f"({pattern})" for pattern in WORDS) + r")\b", re.IGNORECASE)
REPLACEMENTS = tuple(WORDS.values())
KEEP = "prose: keep"
_FENCE = re.compile(r"^\s*(```|~~~)")


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, rejected word and what to write instead."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    passages = _python(text) if path.suffix == ".py" else _markdown(lines)
    for start, passage in passages:
        for offset, line in enumerate(passage.splitlines()):
            number = start + offset
            if KEEP in lines[number - 1]:
                continue
            for match in PATTERN.finditer(line):
                yield number, match.group(), REPLACEMENTS[(match.lastindex or 1) - 1]


def _python(text: str) -> Iterator[tuple[int, str]]:
    wanted = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in wanted:
            yield token.start[0], token.string


def _markdown(lines: list[str]) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(lines, start=1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def tracked() -> Iterator[Path]:
    """Yield the files of the repository that hold prose."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py", "*.md"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in output.split("\0"):
        if name and (ROOT / name).is_file():
            yield ROOT / name


def main() -> None:
    """Check the given files, or all of the repository."""
    paths = [Path(argument) for argument in sys.argv[1:]] or list(tracked())
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*.py")) + sorted(path.rglob("*.md")) if path.is_dir() else [path])
    ]
    count = 0
    for file in files:
        if file.name in {"style.md", "prose.py", "test_prose.py"}:
            continue
        for number, word, better in findings(file):
            print(f"{file}:{number}: {word!r}: write {better}")
            count += 1
    if count:
        sys.exit(f"{count} words that docs/style.md replaces")


if __name__ == "__main__":
    main()
