# make run        set up, run config.yaml as it stands, end at results/report.html
# make submit     on a Slurm cluster: the same as a job of its own, which outlives the login session (slurm/submit.sh)
# make test       set up, check the style, run every test
# make test-fast  the unit tests alone
# make frameworks build the environments of all frameworks (minutes; `make run` needs none of them)
# make clean      remove what the workflow made (data/, results/, logs/); the environment stays
#
# PYTHON=python3.12                                        another interpreter
# TORCH_INDEX=https://download.pytorch.org/whl/cpu         PyTorch's CPU build instead of the CUDA build
PYTHON ?= python3.11
TORCH_INDEX ?=
VENV := .venv
ACTIVATE := . $(VENV)/bin/activate
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Tests that wait leave a core idle: one worker more than there are cores. More than eight find nothing to do.
WORKERS ?= $(shell n=$$(nproc 2> /dev/null || getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n + 1 : 8)))
RESULTS := logs/tests

.PHONY: run submit test test-fast frameworks lint format clean help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 9

run: $(VENV)/main.ready
	@$(ACTIVATE) && snakemake

submit: $(VENV)/main.ready
	@mkdir -p logs
	@sbatch $(SBATCH) slurm/submit.sh $(TARGETS)

frameworks: $(VENV)/main.ready
	@$(ACTIVATE) && PYTHONPATH=src TORCH_INDEX="$(TORCH_INDEX)" python workflow/scripts/environment.py

# First everything that may run side by side, then what looks at times (the mark `alone`); both, whatever the first says.
test: $(VENV)/test.ready lint
	@rm -rf $(RESULTS)
	@$(ACTIVATE) && status=0; \
	  python -m pytest -n $(WORKERS) -m "not alone" --junitxml=$(RESULTS)/side-by-side.xml || status=$$?; \
	  python -m pytest -m alone --junitxml=$(RESULTS)/alone.xml || status=$$?; \
	  exit $$status

test-fast: $(VENV)/test.ready
	@$(ACTIVATE) && python -m pytest tests/unit -n logical

lint: $(VENV)/test.ready
	@$(ACTIVATE) && ruff check . && ruff format --check . && mypy \
	  && snakefmt --check Snakefile rules && snakemake --lint

format: $(VENV)/test.ready
	@$(ACTIVATE) && ruff check --fix . && ruff format . && snakefmt Snakefile rules

$(VENV)/main.ready: envs/main.txt envs/torch.txt envs/sample.txt envs/constraints.txt $(wildcard logger/*.toml logger/*/*.py)
	@command -v $(PYTHON) > /dev/null || { echo "error: $(PYTHON) was not found; next: make PYTHON=<Python 3.11 or 3.12> $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into $(VENV) ..."
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(ACTIVATE) && { test -z "$(TORCH_INDEX)" || pip install --quiet --index-url "$(TORCH_INDEX)" "$$(grep '^torch==' envs/torch.txt)"; }
	@$(ACTIVATE) && pip install --quiet -c envs/constraints.txt -r envs/main.txt -r envs/torch.txt
	@$(ACTIVATE) && pip install --quiet --no-deps -r envs/sample.txt
	@$(ACTIVATE) && pip install --quiet --no-deps --force-reinstall ./logger
	@touch $@

$(VENV)/test.ready: $(VENV)/main.ready envs/test.txt envs/benchmarks.txt
	@$(ACTIVATE) && pip install --quiet -c envs/constraints.txt -r envs/test.txt
	@touch $@

clean:
	rm -rf logs .snakemake
	find data results -mindepth 1 ! -name README.md -delete
