"""``python -m cfo.runtime.handlers run FILE...``."""

from cfo.runtime.handlers.program import command

command(prog_name="python -m cfo.runtime.handlers")
