"""Keeps the log while the live view has the terminal, and returns it to the terminal afterwards."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

MAX_LINES: Final = 20_000
"""The number of lines that are kept; of more, the oldest are left out."""
_MAX_LINE: Final = 16 << 10


class LogBuffer(io.TextIOBase):
    """A text stream that keeps whole lines, and calls ``on_line`` for each.

    :meth:`replay` writes them to another stream, when the view has ended: no line is lost that is not older than
    :data:`MAX_LINES` lines, including those that were written while the view ended.
    """

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self.on_line: Callable[[str], None] | None = None
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._written = 0
        self._partial = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are kept, the oldest first."""
        return tuple(self._lines)

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, text: str) -> int:
        """Add ``text``; a line is complete with its line break."""
        *complete, self._partial = (self._partial + text).split("\n")
        for line in complete:
            self._lines.append(line[:_MAX_LINE])
            self._written += 1
            if self.on_line is not None:
                self.on_line(line[:_MAX_LINE])
        return len(text)

    def replay(self, stream: TextIO) -> None:
        """Write all lines to ``stream``, and forget them. Nothing is written if the terminal was closed."""
        if self._partial:
            self.write("\n")
        left_out = self._written - len(self._lines)
        with suppress(OSError):
            if left_out:
                stream.write(f"[{left_out} earlier lines of the log are left out]\n")
            stream.writelines(f"{line}\n" for line in self._lines)
            stream.flush()
        self._lines.clear()
        self._written = 0
