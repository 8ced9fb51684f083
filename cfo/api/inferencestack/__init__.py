"""InferenceStack (``models.takeoff.co/v1alpha1`` and ``doublewordai.co/v1alpha1``): models behind a gateway.

One gateway receives all requests, and any number of applications serve models behind it. TitanML (later Doubleword)
designed the API for its operator; the spec is the values of a Helm chart; see ``docs/inferencestack.md``.
Functions of this package work on the wire form and never change it.

* :mod:`.kinds`: the GVKs, and the label by which operators of several major versions share a cluster.
* :mod:`.names`: names, labels and annotations of a stack's objects: ``names_of(stack)``.
* :mod:`.profiles`: the pinned defaults of each release: ``newest_profile("v2")``.
* :mod:`.resolution`: defaults, template and application as one: ``resolve(stack, profile)``.
* :mod:`.validation`: errors and warnings: ``validate(stack, profile)``.
* :mod:`.snake_case`: keys of configuration files.
* :mod:`.models`, with :mod:`.component_models` and :mod:`.field_types`: the types from which CRDs and ``types.json``
  are generated. They are not imported by the other modules, because that takes time.
"""
