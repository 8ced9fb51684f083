"""``cfo doctor``: checks an installation of the operator, and prints what is wrong and how to fix it.

:mod:`.facts` sends all requests, which change nothing. :mod:`.checks` has pure functions that turn facts into findings.
:mod:`.examination` runs all checks concurrently.
"""
