"""The dashboard: a live page, which only reads, with the state of RayClusters and of the operator's other kinds.

``cfo dashboard`` serves it on the loopback interface, with the permissions of the user. In a cluster, the metrics
server of the operator serves it to clients that the API server authorizes.

* :mod:`.rows`: what the page shows of each object, from its summary. Pure functions.
* :mod:`.history`: the changes of phases and of the waiting order, in rings.
* :mod:`.state`: all rows, updated by changes. :mod:`.feed`: watches objects while a page is open, and sends messages.
* :mod:`.sources`: the informers. :mod:`.controllers`: the numbers of reconciles.
* :mod:`.streams`: the open streams, each of which is bounded.
* :mod:`.site`: the HTTP routes and their headers. :mod:`.assets`: the files of the page.
* :mod:`.loopback`: the server of ``cfo dashboard``. :mod:`.in_cluster`: the routes of the operator's metrics server.
"""
