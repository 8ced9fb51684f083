"""The types of the Flux kinds, and their CRDs.

As everywhere, reconcilers work on the wire form; the CRDs are generated from these models, and a program that needs a
typed spec can parse one with them.
"""
