"""AppWrapper (``workload.codeflare.dev/v1beta2``): any resources, wrapped as one unit that a queue admits.

:mod:`.inference`, :mod:`.podsets` and :mod:`.quota` determine the pods of a component, for admission and the controller
alike.
"""
