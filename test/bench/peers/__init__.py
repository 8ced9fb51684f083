"""Programs that benchmarks run in separate processes: libraries and operators that cfo is compared with.

If a library is measured and not an operator, the same program also does the task with cfo.
"""
