"""The dashboard: a live page, which only reads, with the state of the operator's kinds.

``cfo dashboard`` serves it on the loopback interface, with the permissions of the user. In a cluster, the metrics
server of the operator serves it to clients that the API server authorizes.
"""
