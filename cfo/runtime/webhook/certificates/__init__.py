"""Why an API server believes the webhooks: certificates, where they come from, and who is told whom to trust.

:mod:`.material` makes and judges keys and certificates (pure but for randomness), :mod:`.serving` is what the server
shows in each handshake, :mod:`.announcement` changes what configurations say (pure); :mod:`.rotator` keeps all of
it in order on a cluster, :mod:`.files` follows certificates that others make.

A rotation fails no call, because trust comes before use: the bundle in the configurations holds the new authority next
to the old one before any replica shows a certificate of the new one, and the old one stays in it until every
replica has changed over.
"""
