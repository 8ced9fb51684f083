"""Run the command line as ``python -m cfo``."""

from cfo.cli import main

main()
