"""``cfo doctor``: checks an installation of the operator, and prints what is wrong and how to fix it.

:mod:`.facts` and :mod:`.permissions` send requests, which change nothing. :mod:`.checks` has pure functions that turn
facts into findings. The checks of features have both in one module. :mod:`.examination` runs all checks concurrently.
"""
