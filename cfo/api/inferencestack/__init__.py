"""InferenceStack (``models.takeoff.co`` and ``doublewordai.co``)."""
