"""The dashboard: a live page, which only reads, with the state of the operator's kinds.

``cfo dashboard`` serves it on the loopback interface, with the permissions of the user. In a cluster, the metrics
server of the operator serves it to clients that the API server authorizes.

* :mod:`.history`: the changes of phases and of the waiting order, in rings.
* :mod:`.state`: what the page shows of each object, from its summary. :mod:`.feed`: watches objects while a page is
  open, and sends messages.
* :mod:`.sources`: the informers.
* :mod:`.streams`: the open streams, each of which is bounded.
* :mod:`.site`: the HTTP routes and their headers, and the files of the page.
* :mod:`.loopback`: the server of ``cfo dashboard``. :mod:`.in_cluster`: the routes of the operator's metrics server.
"""
