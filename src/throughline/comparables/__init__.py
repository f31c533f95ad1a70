"""Comparables: the results of others that ours are compared with, and what makes any two results comparable.

* `published.py`: speeds that others have published, and which results are like ours. `imported.py`: speeds in the logs
  of other programs.
* `plausibility.py`: which speeds cannot be true or are implausible.
* `flop_conventions.py`: the FLOPs of one speed as different projects count them.
* `exports.py`: our results in the formats of other benchmarks.

This package knows rows of results (`records.Result`), whoever measured them, and nothing of the report.
"""
