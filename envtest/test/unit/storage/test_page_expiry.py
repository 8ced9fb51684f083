"""When lists expire that have more pages."""

from __future__ import annotations

from envtest.storage.page_expiry import PAGE_SECONDS, PageExpiry


def test_list_expires_after_five_minutes() -> None:
    pages = PageExpiry()
    pages.begin(7, now=0)
    pages.begin(9, now=0.5)
    pages.begin(20, now=100)
    assert pages.check(PAGE_SECONDS - 1) == 0
    assert pages.check(PAGE_SECONDS) == 9
    assert pages.check(PAGE_SECONDS + 100) == 20


def test_list_that_begins_at_an_expired_revision_can_be_continued() -> None:
    pages = PageExpiry()
    pages.begin(7, now=0)
    assert pages.check(PAGE_SECONDS) == 7
    pages.begin(7, now=PAGE_SECONDS)
    assert pages.check(PAGE_SECONDS) == 6


def test_number_of_entries_is_bounded() -> None:
    pages = PageExpiry()
    for number in range(10_000):
        pages.begin(number, now=number / 10)
    assert len(pages._begun) <= PAGE_SECONDS + 1
