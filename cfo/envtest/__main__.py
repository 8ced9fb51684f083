"""``python -m cfo.envtest``."""

from cfo.envtest.command import command

command(prog_name="python -m cfo.envtest")
