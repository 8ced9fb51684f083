"""Shows the summaries of :mod:`cfo.console.summaries` on a terminal, or as lines of plain text."""
