"""One rank of a run: the measured loop and its clock, the data loader, the heartbeat, and convergence training.

A rank runs in a framework's environment. This package may import frameworks, workloads, the modules directly in
throughline/, and the reading half of a package for data.
"""
