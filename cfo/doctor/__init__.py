"""``cfo doctor``: checks an installation of the operator, and prints what is wrong and how to fix it.

:mod:`cfo.doctor.facts` sends all requests, which change nothing. :mod:`cfo.doctor.checks` has pure functions that turn
facts into findings. :mod:`cfo.doctor.examination` runs all checks concurrently.
"""
