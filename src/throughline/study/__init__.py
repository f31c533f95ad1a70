"""The study: what the configuration asks for. This package runs nothing.

It holds:

* the sections of config.yaml, each in its own file; a section that describes data is a `DataSection`, and a model's
  own keys come from the `Parameters` of its workload;
* the error messages for mistakes in the configuration, and the pages that are generated from the sections;
* the specifications of all runs, the plan that is printed before they start, and the look-up from a target to what
  makes it.

This package imports only the single files of the lowest layer and the framework-neutral files of the workloads. It
imports no framework, record, launcher or report. If a target needs something that another package decides, the
Snakefile passes it in.
"""
