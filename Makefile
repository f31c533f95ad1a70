# make run        set up, run config.yaml as it stands, end at results/report.html
# make submit     the same as a Slurm job, which goes on after you log out (slurm/submit.sh)
# make install    set up only, for instance on a cluster's login node
# make test       set up, check the style, run every test; TESTS="tests/slurm": only these
# make test-fast  only the unit tests, without the slow ones
# make frameworks build the environments of all frameworks (minutes; `make run` needs none of them)
# make doctor     show what this machine can do, what is missing, and how to get it
# make demo-report  make docs/demo-report.html, an example of a report, from the records in docs/demo/
# make first-card what a GPU gives in ten minutes, without a network (tests/gpu/README.md)
# make wheels     fill wheels/ with the packages that `make first-card` needs there; VERSION=3.12: for that Python
# make lock       write the locks in envs/lock/ and the files of conda again, after a change of pins
# make test-gpu-dry  count what a step launches on GPUs, without a GPU (tests/gpu/README.md)
# make clean      remove what the workflow made (data/, results/, logs/); the environment stays
#
# PYTHON=python3.12                                        another interpreter (3.11, 3.12 or 3.13)
# GPU=none                                                 builds for CPUs only (GPU=auto: what the machine has)
# GPU=cuda13                                               builds for GPUs, for a machine with driver 580 or newer
# TORCH_INDEX=https://download.pytorch.org/whl/cpu         PyTorch's build of this index
# FRAMEWORKS="jax paddle"                                  with `make frameworks`: only these
# ARGUMENTS="--configfile mine.yaml"                       with `make run`: for snakemake; also with `make first-card`
# UPDATE=1                                                 with `make test-gpu-dry`: write the table of counts again
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || echo python3.11)
TORCH_INDEX ?=
GPU ?=
VENV := .venv
ACTIVATE := . $(VENV)/bin/activate
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# uv with pip's settings. Locked packages are installed with their hashes; torch is not locked (see envs/apart.txt).
UV := $(VENV)/bin/python src/start.py throughline.installation.uv
LOCKED := $(UV) pip install --quiet --require-hashes --excludes envs/apart.txt -c envs/lock/main.txt

# Waiting tests leave a core idle, so there is one worker more than cores. More than eight would not all be busy.
WORKERS ?= $(shell n=$$(nproc 2> /dev/null || getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n + 1 : 8)))
RESULTS := logs/tests

.PHONY: run install submit test test-fast test-gpu-dry first-card wheels frameworks doctor demo-report lint format lock clean help always

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 22

run: $(VENV)/main.ready
	@$(ACTIVATE) && snakemake $(ARGUMENTS)

install: $(VENV)/main.ready

submit: $(VENV)/main.ready
	@mkdir -p logs
	@sbatch $(SBATCH) slurm/submit.sh $(TARGETS)

doctor:
	@THROUGHLINE_GPU="$(GPU)" $$(command -v $(PYTHON) || command -v python3) src/throughline/commands/doctor.py

demo-report: $(VENV)/main.ready
	@$(ACTIVATE) && python src/start.py workflow/scripts/demo_report.py

frameworks: $(VENV)/main.ready
	@$(ACTIVATE) && TORCH_INDEX="$(TORCH_INDEX)" python workflow/scripts/environment.py $(FRAMEWORKS)

# First the tests that may run side by side, then those that look at times (the mark `alone`). The second group runs
# even if the first fails; pytest ends it with 5 where a folder has none.
test: $(VENV)/test.ready $(if $(TESTS),,lint)
	@rm -rf $(RESULTS)
	@$(ACTIVATE) && status=0; \
	  python -m pytest $(TESTS) -n $(WORKERS) -m "not alone" --junitxml=$(RESULTS)/side-by-side.xml || status=$$?; \
	  python -m pytest $(TESTS) -m alone --junitxml=$(RESULTS)/alone.xml || [ $$? = 5 ] || status=1; \
	  exit $$status

test-fast: $(VENV)/test.ready
	@$(ACTIVATE) && python -m pytest tests/unit -m "not slow" -n logical

# PyTorch's CUDA build (2.7 GB, an environment of its own) on a fake CUDA driver. It is no part of `make test`.
test-gpu-dry: $(VENV)/test.ready
	@$(ACTIVATE) && set -e; lane=$$(python tests/gpu/environment.py); eval "$$lane"; \
	  GPU_DRY_UPDATE="$(UPDATE)" python -m pytest tests/gpu

# It takes the Python that has the image's own torch: `python3`, or PYTHON=...
first-card:
	@$(if $(filter command line,$(origin PYTHON)),$(PYTHON),python3) tests/gpu/first_card.py $(ARGUMENTS)

wheels: $(VENV)/test.ready
	@$(VENV)/bin/python tests/gpu/wheels.py $(or $(VERSION),3.12)

lint: $(VENV)/test.ready
	@$(ACTIVATE) && ruff check . && ruff format --check . && mypy \
	  && snakefmt --check Snakefile workflow/Snakefile rules && snakemake --lint

format: $(VENV)/test.ready
	@$(ACTIVATE) && ruff check --fix . && ruff format . && snakefmt Snakefile workflow/Snakefile rules

$(VENV)/bin/uv: envs/lock/main.txt
	@command -v $(PYTHON) > /dev/null || { echo "error: $(PYTHON) was not found; next: make PYTHON=<Python 3.11, 3.12 or 3.13> $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV), about a minute beside the downloads: 180 MB of packages, and PyTorch with 192 MB"
	@echo "  (CPU build: GPU=none) or 2.7 GB (build for GPUs). What is in uv's cache is not downloaded."
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' envs/lock/main.txt > $(VENV)/uv.txt
	@$(VENV)/bin/python -m pip install -qq --require-hashes -r $(VENV)/uv.txt
	@touch $@

# What GPU=... says stays the choice of this clone, until GPU=... is given again.
$(VENV)/gpu: always $(VENV)/bin/uv
	@test -f $@ -a -z "$(GPU)" || echo "$(or $(GPU),auto)" > $@

$(VENV)/main.ready: $(VENV)/bin/uv $(VENV)/gpu envs/main.txt envs/torch.txt envs/torch.toml envs/apart.txt pyproject.toml
	@sed '/^torch==/d' envs/torch.txt | $(LOCKED) -r envs/main.txt -r -
	@$(VENV)/bin/python src/start.py throughline.installation.torch_build $(TORCH_INDEX)
	@$(UV) pip install --quiet --no-deps --no-build-isolation --reinstall -e .
	@touch $@

$(VENV)/test.ready: $(VENV)/main.ready envs/test.txt envs/benchmarks.txt
	@$(LOCKED) -r envs/test.txt
	@touch $@

# `make lock` keeps every locked version that the pins still allow. `make lock LOCK=--upgrade` takes the newest ones.
LOCK ?=
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
  --no-header --no-annotate $(LOCK)
lock: $(VENV)/bin/uv
	@$(COMPILE) --excludes envs/apart.txt envs/main.txt envs/torch.txt envs/test.txt --output-file envs/lock/main.txt
# A variant for GPUs starts from the versions of its CPU build. torch itself is not locked, but its CUDA packages are.
	@sed '/^torch$$/d' envs/apart.txt > $(VENV)/apart.txt
	@for name in $$($(VENV)/bin/python src/start.py throughline.installation.recipe); do \
	  apart=envs/apart.txt; \
	  case $$name in *.*) apart="$(VENV)/apart.txt --no-emit-package torch"; \
	    test -f envs/lock/$$name.txt || cp envs/lock/$${name%.*}.txt envs/lock/$$name.txt ;; esac; \
	  $(VENV)/bin/python src/start.py throughline.installation.recipe $$name \
	    | $(COMPILE) --excludes $$apart - --output-file envs/lock/$$name.txt || exit 1; \
	done
	@$(VENV)/bin/python src/start.py throughline.installation.conda_files

clean:
	rm -rf logs .snakemake
	find data results -mindepth 1 ! -name README.md -delete
