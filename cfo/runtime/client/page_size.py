"""How many objects each page of a list has, so that no page is too large for memory."""

from __future__ import annotations

from typing import Final

from cfo.runtime.client.errors import ResponseTooLarge

SMALL_PAGE_SIZE: Final = 10
"""At most as many objects are in a small page, which can still have megabytes."""

_SMALLER: Final = (50, SMALL_PAGE_SIZE, 1)

_PAGES: Final = 10
"""After how many pages the next ones have more objects again."""


class PageSize:
    """The number of objects in the next page: fewer after a page that was too large, and later more again.

    ``maximum`` is the number in the first page; 0 if it is not limited. API servers accept another number for each page
    of a list, so a few large objects make only the pages around them small.
    """

    def __init__(self, maximum: int) -> None:
        self._sizes = [maximum, *(size for size in _SMALLER if size < maximum)]
        self._at = 0
        self._pages = 0

    @property
    def current(self) -> int:
        """The number of objects in the next page."""
        return self._sizes[self._at]

    @property
    def is_reduced(self) -> bool:
        """Whether it has been reduced, because objects near the page are large."""
        return self._at > 0

    @property
    def is_small(self) -> bool:
        """Whether it has been reduced to :data:`SMALL_PAGE_SIZE` or less."""
        return self._at > 0 and self.current <= SMALL_PAGE_SIZE

    def reduce(self, error: ResponseTooLarge) -> None:
        """Let the same page be requested with fewer objects. Raises ``error`` if it had only one, or no limit."""
        if self._at == len(self._sizes) - 1:
            raise error
        self._at += 1
        self._pages = 0

    def count_page(self) -> None:
        """Count a page that was not too large."""
        self._pages += 1
        if self._at > 0 and self._pages == _PAGES:
            self._at -= 1
            self._pages = 0
