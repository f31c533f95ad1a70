#!/usr/bin/env bash
# Run Snakemake itself as a small Slurm job, which goes on after you log out: `make submit` in the project's root.
#
#   make submit                                            everything that config.yaml asks for
#   make submit TARGETS="results/bert/bz64_fp16.json" SBATCH="--partition=long --time=2-0"
#
# Only one such job runs at a time: a second one waits until the first has ended. If its node goes down, Slurm starts
# the job again. The job then waits until the jobs that it had submitted before are over, and goes on.
#SBATCH --job-name=throughline --dependency=singleton
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=1 --mem=2000
#SBATCH --requeue --open-mode=append --output=logs/submit-%j.log
set -euo pipefail
. .venv/bin/activate

# List the jobs that Snakemake has submitted from this folder and that are not over.
submitted() {
  squeue --me --noheader --format '%A %j %Z' | while read -r job name folder; do
    if [ "$folder" = "$PWD" ] && [ "$name" != "$SLURM_JOB_NAME" ]; then echo "$job"; fi
  done
}

if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
  while jobs=$(submitted) && [ -n "$jobs" ]; do
    echo "started again; waiting for the jobs of before:" $jobs
    sleep 20
  done
  snakemake --unlock
fi
exec snakemake --cores all --profile slurm "$@"
