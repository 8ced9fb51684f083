"""Development: run a program, and restart it when its source changes.

:mod:`cfo.console.dev.supervisor` supervises any program. ``cfo dev -- COMMAND`` runs it, and ``cfo run --dev`` runs the
operator with it (:mod:`cfo.console.dev.operator_program`).
"""
