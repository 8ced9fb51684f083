"""``python -m cfo``: the command line without its script."""

from cfo.cli import main

main()
