"""Observe: record the environment of a run, and what the machine did during the run.

environment.py describes the system, the processor, the software and our code. other_processes.py measures how much of
the processors other processes use. telemetry.py samples a node, and telemetry_cards.py its GPUs. From the samples,
telemetry_window.py computes figures over the timed window, and telemetry_record.py the parts of a run's record. work.py
counts FLOPs. hardware.py reads what may explain a slow node.

This package may import frameworks, workloads and the single files of the lowest layer. It starts no run and writes no
record.
"""
