"""The console: what a user sees while Snakemake works. It shows the plan, the progress, every figure and every error.

The package in logger/ passes Snakemake's events on. The commands of the rules write to the file OUTPUT instead of the
terminal, and the console shows the last line of this file.
"""

OUTPUT = ".snakemake/throughline.said"
PREFIX = f"set -euo pipefail; export THROUGHLINE_PROGRESS_S=1; exec >> {OUTPUT} 2>&1; "
"""The start of every command of a rule: bash options as Snakemake sets them, and both output streams into OUTPUT."""
