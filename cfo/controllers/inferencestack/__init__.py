"""The controller of InferenceStacks. :mod:`.rendering` computes the objects of a stack."""
