"""The built-in kinds: their types, the resources that serve them, and their defaults and validation rules.

``catalog`` reads the shipped tables of types and resources, ``typed`` normalizes JSON to the form in which
kube-apiserver stores and returns objects, and ``table`` maps each kind to its strategy. Each of the other modules holds
the defaults and the validation of one API group, or of one part of a pod.
"""
