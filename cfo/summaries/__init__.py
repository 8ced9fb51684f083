"""The state of the operator's kinds, for people: what ``cfo status`` and the views show.

Everything here only reads. For each object there is one :class:`Summary`: its state, facts, and what is wrong with it
and how to fix that. The functions that compute them are pure; :class:`Overview` watches the objects, and computes again
only what has changed.
"""
