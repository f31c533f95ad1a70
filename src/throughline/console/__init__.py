"""What a person sees while Snakemake works: the plan, how far it is, every figure and every error as it comes.

The package in logger/ hands Snakemake's events over. The commands of the rules write to SAID instead of the terminal,
and the console shows the last line of it.
"""

SAID = ".snakemake/throughline.said"
PREFIX = f"set -euo pipefail; export THROUGHLINE_PROGRESS_S=1; exec >> {SAID} 2>&1; "
"""Before every command of a rule: bash as Snakemake sets it, and both streams where the console reads them."""
