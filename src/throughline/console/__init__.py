"""The console: what a user sees while Snakemake works: the plan, the progress, every figure and every error."""
