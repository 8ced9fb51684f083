"""The dashboard: a live page, which only reads, with the state of the operator's kinds.

``cfo dashboard`` serves it on the loopback interface, with the permissions of the user. In a cluster, the metrics
server of the operator serves it to clients that the API server authorizes.

* :mod:`.state`: what the page shows of each object, from its summary, and the history of phases and queues.
* :mod:`.feed`: watches objects while a page is open, and sends messages to its stream.
* :mod:`.site`: the HTTP routes, their headers and the files of the page, and the server of ``cfo dashboard``.
* :mod:`.in_cluster`: the routes of the operator's metrics server, and the informers of both servers.
"""
