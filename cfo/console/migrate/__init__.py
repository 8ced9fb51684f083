"""``cfo migrate``: the parts that depend on no kind; :mod:`.raycluster` has the command and its rules.

* :mod:`.steps`: the types of plans. :mod:`.output`: the table and JSON. :mod:`.undo_file`: what is restored.
"""
