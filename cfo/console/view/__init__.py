"""Shows the summaries of :mod:`cfo.console.summaries` on a terminal, or as lines of plain text.

* :mod:`.text`: tables, details and lines of changes as plain text, and the rows of the live table. Pure functions.
* :mod:`.log_buffer`: keeps log lines while the live view has the terminal.
* :mod:`.app`: the live view. It needs the extra ``view`` (Textual); the other modules do not.
* :mod:`.show`: chooses between the live view and plain lines.
"""
