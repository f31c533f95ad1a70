"""What the Snakefile and rules/ call: one call of Snakemake, and what its rules ask about each job.

start.py is where the Snakefile begins, and inside.py is all that we take from Snakemake's inside. call.py reads the
configuration. directives.py, training_jobs.py, slurm_resources.py and node_jobs.py have commands, input functions,
parameters and resources of rules; handlers.py has the handlers. deployed.py stands alone: workflow/Snakefile executes
it.
"""
