"""The benches: every limit of speed that this project holds itself to, as a ratio measured in one run.

``python -m benches`` prints each figure beside its limit and exits 1 on a miss. See docs/benchmarks.md.
"""
