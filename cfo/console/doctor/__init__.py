"""``cfo doctor``: checks an installation of the operator, and prints what is wrong and how to fix it.

:mod:`.facts` sends requests, which change nothing. :mod:`.checks` has pure functions that turn facts into findings.
:mod:`.raycluster` and :mod:`.kueue` have both for the checks of features. :mod:`.examination` runs all checks
concurrently.
"""
