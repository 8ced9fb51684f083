"""The requests of Kubernetes' conformance specs, and the list of these specs.

``specs.txt`` lists the specs and what keeps each from passing; :mod:`test.conformance.specs` reads it. Each test here
names the specs whose requests it sends (:func:`test.conformance.specs.plays`). ``make conformance`` runs the specs
themselves with the program ``e2e.test`` of a Kubernetes release, and :mod:`test.conformance.report` reads its report.
"""
