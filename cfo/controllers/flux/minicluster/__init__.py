"""The controller of MiniClusters: each is a Flux instance on the pods of an Indexed Job.

:mod:`.plan` reads a spec with its defaults. Pure functions render the objects from it: :mod:`.resources`, :mod:`.pods`
and :mod:`.scripts`. :mod:`.job_changes` decides what becomes of an existing Job, and :mod:`.status` what the status
says. :mod:`.reconciler` executes all this; :mod:`.writes` writes the children of :mod:`.objects`, and :mod:`.lead`
reads the pods.
"""
