"""``cfo doctor``: checks an installation of the operator, and prints what is wrong and how to fix it.

:mod:`.facts` sends requests, which change nothing. :mod:`.checks` has pure functions that turn facts into findings. The
checks of features have both in one module. :mod:`.examination` runs all checks concurrently.
"""
