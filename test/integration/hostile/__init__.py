"""Tests of what tenants with few permissions can do to the operator and to each other.

Each tenant is a user with exactly the permissions that an attack needs, or one of :mod:`test.support.tenants`, with the
aggregated role ``edit``; any pod can send requests to the webhooks. The operator has the roles of its manifests, which
must allow all that it requests (``conftest.py``).
:mod:`.test_soak` runs the attacks at once and measures other tenants. :mod:`.attacks` and :mod:`.pod` are the tools.

==============================================================  ===================================================
attack                                                          test (of this package, unless a path is given)
==============================================================  ===================================================
an AppWrapper or RayCluster with too many entries               test_soak; unit/webhooks/*/test_limits.py
an RSA key whose use takes minutes, in a CA Secret              test_secrets; unit/runtime/pki/test_private_keys.py
an Ingress that gets another tenant's host later                test_foreign_objects
the names of other owners' objects, pods with a head's labels   test_foreign_objects
a RayCluster's client port without TLS                          integration/test_raycluster_networkpolicy.py
objects that are nested too deeply                              unit/runtime/cache/test_nesting.py, fuzz
large Secrets and Ingresses with the operator's label           test_secrets, test_foreign_objects
idle connections and incomplete bodies                          test_soak; unit/runtime/process/test_listener.py
pipelined requests, compressed bodies                           test_soak; unit/runtime/process/test_listener.py
a review that never ends                                        unit/runtime/webhook/test_server.py
reviews without a client certificate                            unit/runtime/webhook/test_server.py
AppWrappers that bypass the webhook                             test_unvalidated_appwrappers
AppWrappers with many missing components                        test_many_components
AppWrappers with components that the operator cannot create     test_unpermitted_components
a Job with more pods than its MiniCluster                       test_resized_jobs
objects beyond the quota, privileged pods                       test_tenant_guardrails
a planted CA or cookie Secret                                   test_secrets
a RayCluster with forged parts of the operator                  unit/webhooks/raycluster/test_validation.py, fuzz
KubeRay's security fields without KubeRay's feature             integration/test_raycluster_networkpolicy.py
certificate requests for other names, floods of them            integration/test_raycluster_node_certificates.py
another operator on the webhook port                            unit/runtime/webhook/test_server.py
objects that a stack's creator is not allowed to create        test_lent_permissions
a FluxJob or MiniCluster without permission for Jobs           test_lent_permissions
a stack with another namespace's host                         test_hosts_of_stacks
pods for which the cache has no room                          test_crowded_caches
==============================================================  ===================================================
"""
