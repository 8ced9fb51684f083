"""``python -m cfo.runtime.handlers run FILE...``."""

from cfo.runtime.handlers.command import command

command(prog_name="python -m cfo.runtime.handlers")
