"""Tests of ``hack.prose``: which words it rejects, and where it looks for them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from hack.prose import findings, main, tracked


def words(folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    """Return line and word of each finding in a file with this name and content."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).lstrip("\n"))
    return [(finding.line, finding.word) for finding in findings(path)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Somebody else created it.",
        "NOBODY's turn.",
        "Whoever may create one.",
        "The user is told.",
        "It tells the queue.",
        "Its controller hears of changes.",
        "The webhook judges it.",
        "It is created anew.",
        "It waits for ever.",
        "All but for one.",
        "The table beside it.",
        "The old one gives way.",
        "It is no more.",
        "The value is no text.",
        "It stands in the spec.",
        "The pod is gone.",
        "He watches his pods.",
        "The old one gave way.",
        "It stands wherever it was.",
        "The pods are no more.",
        "The operator sees to it.",
        "The object is left alone.",
    ],
)
def test_sentence_is_rejected(tmp_path: Path, sentence: str) -> None:
    assert words(tmp_path, "page.md", sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Besides, it is no longer needed.",
        "Kubernetes understood the standard object.",
        "The theme of this history.",
        "The user has permission to create pods.",
        "There is no text.",
        "The user `nobody` is code.",
    ],
)
def test_plain_sentence_is_accepted(tmp_path: Path, sentence: str) -> None:
    assert words(tmp_path, "page.md", sentence) == []


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("page.md", "The number of pods\nof a component\nof an AppWrapper.\n", 3),
        (
            "page.md",
            "* One of them.\n* The order of `rules` of the groups of `objects` counts.\n",
            2,
        ),
        ("page.md", "| a | the end of the names of the keys of a map |\n", 1),
        (
            "module.py",
            '"""The order of the requests\n\nof a kind."""\n\n# the end of the names\n# of the keys of a map\n',
            6,
        ),
        ("config.yaml", "size: 1  # the maximum of the numbers of pods of each\n", 1),
    ],
)
def test_third_of_in_a_sentence_is_rejected(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    assert words(tmp_path, name, text) == [(line, "of of of")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "The number of pods of a component. The name of an AppWrapper: one of many.\n"),
        ("page.md", "* The number of pods\n* the name of it\n* its list of keys\n"),
        ("page.md", "| the size of it | the name of it | its list of keys |\n"),
        ("page.md", "The [content of the Secret of a user](#content-of-secrets).\n"),
        (
            "module.py",
            "A = 1  # the end of it\nB = 2  # the start of it\nC = 3  # the size of it\n",
        ),
        (
            "module.py",
            "MESSAGE = 'The number of restarts of the containers of this pod'  # prose: keep\n",
        ),
    ],
)
def test_sentence_with_two_of_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    assert words(tmp_path, name, text) == []


def test_markdown_code_is_skipped_and_phrases_may_wrap(tmp_path: Path) -> None:
    text = """
        # Title

        Inline `nobody` is code, ``told`` too.

        ```sh
        grep nobody
        ```

        This stays for
        ever, says nobody.

        ~~~
        told
        ~~~
        """
    assert words(tmp_path, "page.md", text) == [(9, "for ever"), (10, "nobody")]


def test_python_comments_docstrings_strings_and_identifiers_are_read(tmp_path: Path) -> None:
    text = '''
        """Summary.

        The owner is told here, but ``told`` is code.
        """

        # this is removed but
        # for one
        name = f"nobody {1}"


        def is_nobodys(told_by: int, tellsAll: str) -> int:
            return told_by


        class Nobody: ...
        '''
    assert words(tmp_path, "module.py", text) == [
        (3, "told"),
        (6, "but for"),
        (8, "nobody"),
        (11, "is_nobodys"),
        (11, "told_by"),
        (11, "tellsAll"),
        (12, "told_by"),
        (15, "Nobody"),
    ]


@pytest.mark.parametrize(
    "name", ["config.yaml", "rules.yml", "pyproject.toml", "deploy.mk", "Makefile", "x.Dockerfile"]
)
def test_only_comments_of_data_and_make_files_are_read(tmp_path: Path, name: str) -> None:
    text = """
        user: nobody
        target: dependency ## Tell nobody
        # told
        url: http://example.test/#told
        """
    assert words(tmp_path, name, text) == [(2, "nobody"), (3, "told")]


def test_shell_scripts_are_recognized_by_their_first_line(tmp_path: Path) -> None:
    assert words(tmp_path, "run", "#!/usr/bin/env bash\n# nobody\necho nobody\n") == [(2, "nobody")]
    assert words(tmp_path, "LICENSE", "# nobody\n") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("module.py", "user = 'nobody'  # prose: keep\n"),
        ("module.py", 'MESSAGE = """\nnobody\n"""  # prose: keep\n'),
        ("page.md", "Go prints nobody. <!-- prose: keep -->\n"),
        ("config.yaml", "# nobody, as in Go (prose: keep)\n"),
    ],
)
def test_marked_line_is_kept(tmp_path: Path, name: str, text: str) -> None:
    assert words(tmp_path, name, text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "# Generated by `make manifests` from cfo/manifests.\n# nobody\n"),
        ("page.md", "<!-- Generated by `make manifests` from cfo/config/model.py. -->\nnobody\n"),
        ("table.json", '{"nobody": "told"}'),
        ("table.csv", "nobody\n"),
    ],
)
def test_generated_files_and_data_are_skipped(tmp_path: Path, name: str, text: str) -> None:
    assert words(tmp_path, name, text) == []


def test_replacement_is_printed_and_the_exit_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("It is created anew.\n")
    monkeypatch.setattr("hack.prose.ROOT", tmp_path)
    monkeypatch.setattr("hack.prose.tracked", lambda: [page])
    monkeypatch.setattr("sys.argv", ["hack.prose"])
    with pytest.raises(SystemExit, match=r"words and sentences to replace: 1; see docs/style\.md"):
        main()
    assert capsys.readouterr().out == "page.md:1: 'anew': write again, recreated\n"


def test_tracked_files_include_the_tools_and_the_changelog() -> None:
    names = {path.name for path in tracked()}
    assert {"prose.py", "CHANGELOG.md", "Makefile", "deploy.mk", "run"} <= names
