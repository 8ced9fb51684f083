"""The URLs that Go's ``net/url`` rejects; all answers are those of kube-apiserver."""

from __future__ import annotations

import pytest

from envtest.formats.go_url import url_problem


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://a:b", 'invalid port ":b" after host'),
        ("https://a:1:2", 'invalid port ":1:2" after host'),
        ("https://a:８0", 'invalid port ":８0" after host'),
        ("https://[::1", "missing ']' in host"),
        ("https://[::1]a", 'invalid port "a" after host'),
        ("https://[a]", 'invalid host: ParseAddr("a"): unable to parse IP'),
        ("https://a b", 'invalid character " " in host name'),
        ("https://a%41", 'invalid URL escape "%41"'),
        ("https://a/%zz", 'invalid URL escape "%zz"'),
        ("https://[fe80::1%zz]", 'invalid URL escape "%zz"'),
        ("https://u%zz@a", 'invalid URL escape "%zz"'),
        ("https://u s@a", "net/url: invalid userinfo"),
        ("ht tp://a", "first path segment in URL cannot contain colon"),
        ("1https://a", "first path segment in URL cannot contain colon"),
        ("://a", "missing protocol scheme"),
        ("https://a\x7f", "net/url: invalid control character in URL"),
    ],
)
def test_url_that_go_rejects(url: str, problem: str) -> None:
    assert url_problem(url).endswith(f": {problem}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "*",
        "//a",
        "/a:b",
        "https:a",
        "https://a:",
        "https://a:99999/b?c#d",
        "https://[::1]:443",
        "https://[fe80::1%25eth0]",
        "https://u:p@a",
        "https://<a>",
        "https://é.example",
        "https:///a",
    ],
)
def test_url_that_go_parses(url: str) -> None:
    assert not url_problem(url)
