"""One rank of a run: the measured loop and its clock, data ahead of need, heartbeat, convergence training.

It runs in a framework's environment and knows frameworks, workloads, the ground, and the reading half of a data room.
"""
