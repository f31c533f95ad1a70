"""One rank of a run (`run.py`): the measured loop and its clock (`measurement.py`), the data loader, the heartbeat, and
convergence training with its checkpoints.

A rank runs in a framework's environment. This package may import frameworks, workloads, the single files of the lowest
layer, and the reading half of a data package.
"""
