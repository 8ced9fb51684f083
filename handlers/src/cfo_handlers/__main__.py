"""``python -m cfo_handlers run FILE...``."""

from cfo_handlers.command import command

command(prog_name="python -m cfo_handlers")
