"""An HTTP/1.1 server: the connections of the API server, without its meaning.

``request_head`` and ``request_body`` parse requests by llhttp, ``connection`` serves one client, ``deadlines`` limits
its time, ``tls`` encrypts, ``received`` and ``responses`` are what handlers receive and return, and ``listener``
accepts clients. It replaces aiohttp's server, whose import takes longer than everything else that a start needs, and
which takes more time for each request than the API server itself.
"""
