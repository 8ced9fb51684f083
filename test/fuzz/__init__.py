"""Fuzzing: the functions that read what users write get mutations of valid objects, and must keep their contracts.

``make test`` runs a few hundred inputs, the same ones each time. ``make fuzz`` runs ``FUZZ_EXAMPLES`` random ones. A
failure prints the smallest input that Hypothesis found, and a line that repeats it.

* :mod:`.profiles`: the number of inputs of each property.
* :mod:`.seeds`: the valid objects: the samples and, if they exist, the objects in the recordings.
* :mod:`.mutations`: what is changed in them.
* :mod:`.stored_objects`: the objects that an API server stores, according to their CRD.
* :mod:`.bounds`: limits of time and size, and what a terminal may show.
* :mod:`.reviews`: send an object through a webhook as an API server does, and check the response.
"""
