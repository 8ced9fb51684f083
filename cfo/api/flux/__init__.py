"""Flux (``flux-framework.org``): MiniClusters, and FluxJobs, which wait in the queue of a FluxSetup.

A MiniCluster (v1alpha2) is a Flux instance on the pods of an Indexed Job, compatible with upstream's. A FluxJob
(v1alpha1) is one command that runs in a MiniCluster of its own, once the FluxSetup (v1alpha1) that governs its
namespace has quota for it.
"""
