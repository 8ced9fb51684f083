"""The protocols of exec, attach and port-forward: channels over WebSockets, and SPDY/3.1 streams.

``exec``, ``attach`` and ``portforward`` of a pod are requests whose connection is upgraded. Each protocol is reduced to
:class:`~envtest.streams.remote_command.Streams` or a pair of byte streams, on which the answers of a scenario run.
"""
