"""Links in relayed HTML."""

from __future__ import annotations

import time
from functools import partial

import pytest

from envtest.http_server.html_links import rewrite_links, rewritten_url

PREFIX = "/api/v1/namespaces/a/pods/p/proxy"
rewrite = partial(rewritten_url, prefix=PREFIX, hosts=("10.0.0.1:80", "server"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/rewriteme", f"{PREFIX}/rewriteme"),
        ("/a/?b=c#d", f"{PREFIX}/a/?b=c#d"),
        (f"{PREFIX}/done", f"{PREFIX}/done"),
        ("http://10.0.0.1:80/x", f"{PREFIX}/x"),
        ("http://other/x", "http://other/x"),
        ("relative", "relative"),
        ("http://[", "http://["),
    ],
)
def test_absolute_paths_go_through_the_proxy(url: str, expected: str) -> None:
    assert rewritten_url(url, PREFIX, ("10.0.0.1:80", "server")) == expected


def test_links_in_tags_are_rewritten() -> None:
    page = """<a class='x' href='/b'>href="/c"</a><img src="/d"><p title="/e">"""
    expected = (
        f"""<a class='x' href="{PREFIX}/b">href="/c"</a><img src="{PREFIX}/d"><p title="/e">"""
    )
    assert rewrite_links(page, rewrite) == expected


def test_long_pages_take_linear_time() -> None:
    seconds = []
    for size in (20_000, 200_000):
        started = time.process_time()
        for page in ("<a " * size, "<a" + " href=" * size, "<a href='" * size):
            rewrite_links(page, rewrite)
        seconds.append(time.process_time() - started)
    assert seconds[1] < 40 * seconds[0] + 1
