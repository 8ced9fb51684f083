"""The webhook server's certificates: where they come from, how they rotate, and how API servers come to trust them.

* :mod:`.certificate_authority`: create, parse, check and renew the CA and the serving certificate. Pure functions,
  except for the randomness of keys and serial numbers.
* :mod:`.serving_certificate`: the certificate that the server presents in TLS handshakes.
* :mod:`.client_configs`: read and change the ``clientConfig`` (CA bundle, URL) of webhook configurations and CRDs. Pure
  functions.
* :mod:`.ca_injector`: writes the CA bundle, and a URL if there is one, into those objects.
* :mod:`.rotator`: the reconciler that keeps the Secret, the CA bundles and the served certificate in step.
* :mod:`.file_watcher`: the alternative to the rotator: certificates that cert-manager, OLM or another tool mounts as
  files.

No webhook call fails during a rotation, because trust comes before use: the CA bundles contain the new CA alongside
the old one before any replica serves a certificate of the new CA, and the old CA stays in the bundles until every
replica has switched.
"""
