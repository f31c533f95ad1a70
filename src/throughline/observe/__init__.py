"""Observe: what a run ran in, and what the machine did meanwhile.

environment.py says which system, processor, software and code it was, and how much others take of the processors;
telemetry*.py sample every node, and observed.py makes figures of it over the timed window; work.py counts FLOPs.

This room knows frameworks, workloads and the ground. It starts no run and writes no record.
"""
