"""Shows the summaries of :mod:`cfo.summaries` on a terminal, or as lines of plain text."""
