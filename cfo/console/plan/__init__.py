"""``cfo plan``: what an upgrade, a change of the label ``operatorVersion`` or an edit of InferenceStacks would alter.

The plan is computed offline, from manifests: it renders each stack as it is and as it would be, and compares the
objects. If the manifests contain the existing objects of a stack, these are compared instead of the rendered ones.

* :mod:`.documents`: read stacks and objects from YAML or JSON files, within limits.
* :mod:`.planning`: the plan of one stack, a pure function.
* :mod:`.plan_command`: the command, its summary and its diff.
"""
