"""The study: what is asked for. It runs nothing.

Here are the sections of config.yaml, each in a file of its own, what every mistake in them is called, and the pages
that are generated from them; the specifications of all runs, the plan before they start, and what is behind a target.
A section that describes data is a `DataSection`. What a model takes of its own comes from its workload's `Parameters`.

This room knows the ground and the workloads' neutral files. It knows no framework, record, launcher or report: where a
target needs what another room asks for, the Snakefile hands it over.
"""
