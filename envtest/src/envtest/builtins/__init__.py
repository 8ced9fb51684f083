"""The built-in kinds: what their types are, how they are served, and the rules that hold for them.

``catalog`` reads the shipped tables, ``typed`` turns JSON into the form which the server stores and answers, the
other modules hold the defaults and rules of one API group each; ``table`` lists which kind has which.
"""
