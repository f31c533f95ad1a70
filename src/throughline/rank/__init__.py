"""One rank of a run: the measured loop and its clock, the data loader, the heartbeat, and convergence training.

A rank runs in a framework's environment. This room may import frameworks, workloads, the single files of the lowest
floor, and the reading half of a data room.
"""
