"""``cfo plan``: the parts that depend on no kind; :mod:`.inferencestack` has the command and its rules.

* :mod:`.parsing`: YAML and JSON files, within limits.
* :mod:`.comparison`: the part of an existing object that an apply would change.
"""
