"""``cfo status``: the state of the operator's kinds in any cluster, read only.

It needs no operator, and only the permissions that the user has: what is forbidden or not installed is left out.

* :mod:`.connection`: connects, and determines what can be read.
* :mod:`.status_command`: the command.
"""
