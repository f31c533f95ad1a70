"""Checks that train in order to answer a question: numerical equivalence, convergence, the largest batch.

Each check has a function `requests`, which returns what the configuration asks of it, and starts training through the
launcher. Nothing is timed here. This package may import every package but report/.
"""
