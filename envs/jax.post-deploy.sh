#!/usr/bin/env bash
# Run by Snakemake in the new conda environment, in the project's root: the same builder as without conda.
set -euo pipefail
PYTHONPATH=src python workflow/scripts/environment.py jax --here
