"""The webhook server's certificates: their source, their rotation, and how API servers trust them.

* :mod:`.certificate_authority`: creates, parses, checks and renews the CA and the serving certificate. Pure functions,
  except for the randomness of keys and serial numbers.
* :mod:`.serving_certificate`: the certificate that the server presents in TLS handshakes.
* :mod:`.client_configs`: reads and changes the ``clientConfig`` (CA bundle, URL) of webhook configurations and CRDs.
  Pure functions.
* :mod:`.ca_injector`: writes the CA bundle, and a URL if there is one, into those objects.
* :mod:`.rotator`: the reconciler that keeps the Secret, the CA bundles and the served certificate in sync.
* :mod:`.file_watcher`: the alternative to the rotator: certificates that cert-manager, OLM or another tool mounts as
  files.

No webhook call fails during a rotation, because trust is established before use: the CA bundles contain the new CA
alongside the old one before any replica serves a certificate of the new CA, and the old CA stays in the bundles until
every replica has switched.
"""
