"""``cfo status``: the state of RayClusters and the operator's other kinds in any cluster, read only.

It needs no operator, and only the permissions that the user has: what is forbidden or not installed is left out.

* :mod:`.selection`: which kinds and objects the arguments select. Pure functions.
* :mod:`.session`: connects, and determines what can be read.
* :mod:`.documents`: the output for programs. Pure functions.
* :mod:`.status_command`: the command.
"""
