"""Questions that training itself answers: equal mathematics, convergence, the largest batch.

A check says which benchmarks ask for it (`requests`), runs the launcher, and gives the content of a file under
results/. Nothing is timed here. This room knows every room but report/.
"""
