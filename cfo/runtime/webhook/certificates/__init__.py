"""The webhook server's certificates: their source, their rotation, and how API servers trust them.

No webhook call fails during a rotation, because trust is established before use: the CA bundles contain the new CA
alongside the old one before any replica serves a certificate of the new CA, and the old CA stays in the bundles until
every replica has switched.
"""
