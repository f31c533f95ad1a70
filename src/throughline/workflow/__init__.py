"""What the Snakefile and rules/ call: one call of Snakemake, and what its rules ask about each job.

inside.py is all that we take from Snakemake's inside. call.py reads the configuration. inputs.py, training_jobs.py,
slurm_resources.py and node_jobs.py have input functions, parameters and resources of rules. before_start.py checks
whether everything can be made here. deployed.py stands alone: workflow/Snakefile executes it.
"""
