"""The built-in kinds: their types, the resources that serve them, and their defaults and validation rules.

``catalog`` reads the shipped tables of types and resources, ``normalization`` converts JSON to the form in which
kube-apiserver stores and returns objects, and ``table`` maps each kind to its strategy. Most other modules hold the
defaults and the validation for one API group, or for one part of a pod.
"""
