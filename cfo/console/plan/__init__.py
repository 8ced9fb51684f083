"""``cfo plan``: what an upgrade, a change of the label ``operatorVersion`` or an edit of InferenceStacks would alter.

The plan is computed offline, from manifests: it renders each stack as it is and as it would be, and compares the
objects. If the manifests contain the existing objects of a stack, these are compared instead of the rendered ones.
"""
