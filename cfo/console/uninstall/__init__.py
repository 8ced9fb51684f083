"""``cfo uninstall``: removes an installation in an order that avoids deadlocks.

1. The webhook configurations: with ``failurePolicy: Fail``, and without their server, they would block all writes of
   the kinds that they are registered for.
2. With ``delete_crds``: the objects of our kinds, while the operator can still clean up what it created for them.
3. The operator's Deployment.
4. The operator's finalizers and conditions, which no one else would remove.
5. Everything else, including the NetworkPolicies that deny everything by default in whole namespaces.

RayClusters and their workloads are kept, and so is the namespace, because it may contain other objects.

Nothing is removed if the namespace has no operator, or if an operator runs that would not be removed, because it would
create its objects again. If cluster-scoped objects belong to an operator in another namespace, also under the names
that OLM generates, only what belongs to the named namespace is removed: the other operator needs the CRDs, the
ClusterRoles that are bound to it and the finalizers. Objects whose finalizers no operator removes any more are
reported. A namespace that does not exist has no operator, so what refers to it is removed; one that cannot be read may
have one.

The command fails if something that was asked for was not done, and can be repeated: without anything to remove, it
succeeds.
"""
