"""InferenceStack (``models.takeoff.co/v1alpha1`` and ``doublewordai.co/v1alpha1``): models behind a gateway.

One gateway receives all requests, and any number of applications serve models behind it. TitanML (later Doubleword)
designed the API for its operator; the spec is the values of a Helm chart; see ``docs/inferencestack.md``.
Functions of this package work on the wire form and never change it.
"""
