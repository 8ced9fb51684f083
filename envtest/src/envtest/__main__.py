"""``python -m envtest``: the same as the console script ``envtest``."""

from envtest.command import main

main()
