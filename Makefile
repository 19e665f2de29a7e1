# make tables: reproduce the paper's tables at a small size.    make test: run the tests.
# Both install the environment first. GPU=1 installs the environment for NVIDIA GPUs, which later
# calls keep; GPU= goes back to the environment for CPUs.

PYTHONS := python3.13 python3.12 python3.11 python3
FITS := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(firstword $(foreach python,$(PYTHONS),$(shell $(python) -c "$(FITS)" 2> /dev/null && echo $(python))))
CORES ?= 4
WORKERS ?= 2
GPU ?= $(if $(wildcard .venv/gpu),1)
LOCK := requirements/$(if $(GPU),gpu,cpu).txt
STAMP := .venv/installed-$(if $(GPU),gpu,cpu)
# An environment contains its own path, so a copied or moved one still uses the first folder.
MADE_IN := made=$$(sed -nE 's/^command = .* -m venv (--[^ ]+ )*//p' .venv/pyvenv.cfg 2> /dev/null)
FOREIGN := $(shell $(MADE_IN); test -z "$$made" -o "$$(readlink -f "$$made")" = "$$(readlink -f .venv)" \
	|| echo foreign)
ACTIVATE := . .venv/bin/activate &&
PYTEST := python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tests whose results depend on floating-point arithmetic, to be run as on other processors.
NUMERIC := tests/algorithms tests/training/conformance \
	$(foreach name,drop_in forward generation savings trainer ungraded,tests/training/test_$(name).py)

.PHONY: help setup foreign tables tables-record studies baseline arena arena-record arena-pooled \
	arena-tuning arena-real arena-real-tuning arena-minif2f arena-minif2f-tuning arena-rivals \
	arena-rivals-tuning test test-all test-docs test-faults test-gpu test-processors \
	test-versions mutants gpu bench docs docs-serve figures-of-docs lint lock dist clean

help:
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 28

setup: $(STAMP)  ## install the environment into .venv, and Lean if there is none

# The stamp says that the environment is complete, so it is deleted before anything changes. Without
# the stamp, as after an interruption or for the other lock file, the environment is made again.
$(STAMP): $(LOCK) pyproject.toml $(FOREIGN)
	@test "$$(uname)" = Linux || { \
		echo "The pipeline needs Linux, but this is $$(uname): use the container (docs/servers.md)," \
			"or WSL 2 on Windows. For the trainer alone, run pip install ."; exit 1; }
	@$(or $(PYTHON),false) -c "$(FITS)" 2> /dev/null || { \
		echo "$(or $(PYTHON),$(PYTHONS)): none is a Python 3.11 to 3.13 with its venv module." \
			"Install one (apt install python3-venv), or run make PYTHON=/path/to/python3.13"; exit 1; }
	@echo "Installing $(LOCK) into .venv"
	@test -e $@ || $(PYTHON) -m venv --clear .venv
	@rm -f .venv/installed-* && $(if $(GPU),touch,rm -f) .venv/gpu
	@.venv/bin/python requirements/install.py $(LOCK)
	@.venv/bin/rapid lean-setup || echo "Lean is not installed (see above): minif2f's cells will be dashes."
	@touch $@

foreign:
	@$(MADE_IN); echo ".venv was made for $$made, so it is installed again for this folder"
	@rm -f .venv/installed-*

tables: setup  ## run the pipeline of params.yaml; writes reports/tables.tex  (CORES=4)
	$(ACTIVATE) snakemake --cores $(CORES) reports/tables.tex
	@cat reports/tables.txt

studies: setup  ## ablations of RAPID; writes reports/studies/report.html
	$(ACTIVATE) snakemake --cores $(CORES) studies
	@cat reports/studies/tables.txt

# Separate experiments, which can be resumed like all others (docs/arena.md). With
# ALGORITHM=my-algorithm RATE=1.0e-4 only `my-algorithm` and PG are run. Their results are compared
# with those in experiments/arena-results.csv.
ARENA_NAME := arena$(patsubst --%,-%,$(ARENA))
RATE ?= 1.0e-4
# A variant such as rapid-H8,reuse=2 is in experiments/arena-rapid-H8-reuse-2.
COMMA := ,
MINE_FOLDER = arena-$(subst .,-,$(subst =,-,$(subst $(COMMA),-,$(ALGORITHM))))
MINE = --config name=$(MINE_FOLDER) 'arena={only: [pg, "$(ALGORITHM)"], fields: { \
	mbpp_plus: {rates: {"$(ALGORITHM)": $(RATE)}}, math: {rates: {"$(ALGORITHM)": $(RATE)}}}}'
TUNING := experiments/arena.yaml experiments/arena-tuning.yaml

arena: setup  ## compare all algorithms under equal conditions  (ARENA=--quick: in minutes)
	@test -z "$(ALGORITHM)" -o -e experiments/arena-results.csv || { \
		echo "experiments/arena-results.csv does not exist: run make arena, then make arena-record"; \
		exit 1; }
	$(ACTIVATE) snakemake --cores $(CORES) --configfile params.yaml experiments/$(ARENA_NAME).yaml \
		$(if $(ALGORITHM),$(MINE)) -- arena
	@cat experiments/$(if $(ALGORITHM),$(MINE_FOLDER),$(ARENA_NAME))/reports/arena/tables.txt

# The files from which a report is made, for Git. $(1): folders; $(2): the archive; $(3): further file
# names.
SMALL := manifest.json summary.json evaluation.json curve.jsonl
define pack_small_files
	find $(1) -type f \( $(patsubst %,-name % -o,$(SMALL) $(3)) -false \) | LC_ALL=C sort | \
		tar -cJf $(strip $(2)) -T - --mtime=@0 --owner=0 --group=0 --mode=644
endef
RAW := experiments/arena-raw.tar.xz

arena-record:  ## save the results of a whole arena in experiments/, for Git
	cp experiments/arena/reports/arena/results.csv experiments/arena-results.csv
	cp experiments/arena/reports/arena/tables.txt experiments/arena-tables.txt
	$(call pack_small_files,experiments/arena,$(RAW))

tables-record:  ## save all runs of `make tables` and `make studies` in experiments/, for Git
	@test -e reports/tables.txt -a -e reports/studies/tables.txt || { \
		echo "reports/tables.txt or reports/studies/tables.txt is missing: run make tables studies"; \
		exit 1; }
	$(call pack_small_files,data models distilled runs evaluations,\
		experiments/tables-raw.tar.xz,steps.jsonl token_weights.json)

arena-pooled: setup  ## test the arena's claims on both recorded runs; writes experiments/arena-pooled.txt
	$(ACTIVATE) python -m reports.pooled --configfile params.yaml experiments/arena.yaml \
		--raw $(RAW) --earlier experiments/arena-results-earlier.csv \
		--output experiments/arena-pooled.txt

# These experiments are run in blocks (docs/arena-real.md, docs/arena-minif2f.md,
# docs/arena-rivals.md, docs/baseline.md). A block is one seed; in a tuning it is one seed with one
# learning rate. A block is recorded as soon as it is finished, and its models are deleted. Recorded
# runs are not made again, even on another machine. If code has changed since, they are stale, and
# made again unless ACCEPT=1. The quick form of an experiment is an overlay on it.
SUFFIX = $(patsubst --%,-%,$(if $(filter baseline,$@),$(BASELINE),$(ARENA)))
BLOCKS = experiments/$@.yaml $(if $(SUFFIX),experiments/$@$(SUFFIX).yaml)
BLOCKS_NAME = $@$(SUFFIX)
ARCHIVES = experiments/$(if $(SUFFIX),$(BLOCKS_NAME)/)$(BLOCKS_NAME)
BLOCKS_TUNING = experiments/$(@:-tuning=).yaml experiments/$@.yaml
# $(1): parameter files; $(2): beginning of the archives' paths; $(3): the report, arena or studies,
# of which a block only makes the runs, because its report would show no other seed.
define run_blocks
	$(ACTIVATE) python -m reports.record --configfile params.yaml $(1) --archives $(2) --unpack
	$(if $(ACCEPT),$(ACTIVATE) rapid accept --configfile params.yaml $(1))
	$(ACTIVATE) set -e; files="--configfile params.yaml $(1)"; \
		blocks=$$(python -m reports.record $$files --archives $(2) --list-blocks $(SEEDS)); \
		echo "$$blocks" | while read -r seed parameters; do \
			snakemake --cores $(CORES) $$files --config "$$parameters" --omit-from $(3) \
				-- $(3) < /dev/null; \
			python -m reports.record $$files --archives $(2) --pack $$seed; \
		done
endef
# $(1): parameter files; $(2): beginning of the archives' paths; $(3): commands for when no block is
# left. Blocks are left if SEEDS has selected others.
define end_blocks
	$(ACTIVATE) set -e; files="--configfile params.yaml $(1)"; \
		left=$$(python -m reports.record $$files --archives $(2) --unrecorded); \
		if [ -n "$$left" ]; then \
			echo "$$left. Results follow after the last block: repeat the command without SEEDS."; \
		else $(3); fi
endef
# $(1): the report; $(2): the report's files to keep.
define run_experiment_in_blocks
	$(call run_blocks,$(BLOCKS),$(ARCHIVES),$(1))
	$(call end_blocks,$(BLOCKS),$(ARCHIVES),\
		snakemake --cores $(CORES) $$files -- $(1); \
		for file in $(2); do \
			cp experiments/$(BLOCKS_NAME)/reports/$(1)/$$file $(ARCHIVES)-$$file; \
		done; \
		cat $(ARCHIVES)-tables.txt)
endef
define tune_in_blocks
	$(call run_blocks,$(BLOCKS_TUNING),experiments/$@,arena)
	$(call end_blocks,$(BLOCKS_TUNING),experiments/$@,\
		python -m reports.tuning $$files --record experiments/$@.csv \
			--write experiments/$(@:-tuning=).yaml)
endef

arena-real: setup  ## the arena on SmolLM2-135M, seed by seed  (SEEDS="1 2"; ARENA=--quick: in minutes)
	$(call run_experiment_in_blocks,arena,results.csv tables.txt)

arena-real-tuning: setup  ## tune the learning rates of arena-real, on other problems
	$(tune_in_blocks)

arena-minif2f: setup  ## the arena on made theorems with Lean, seed by seed  (SEEDS="1 2")
	$(call run_experiment_in_blocks,arena,results.csv tables.txt)

arena-minif2f-tuning: setup  ## tune the learning rates of arena-minif2f
	$(tune_in_blocks)

arena-rivals: setup  ## the arena with recent off-policy algorithms, seed by seed  (SEEDS="1 2")
	$(call run_experiment_in_blocks,arena,results.csv tables.txt)

arena-rivals-tuning: setup  ## tune the learning rates of arena-rivals
	$(tune_in_blocks)

baseline: setup  ## why RAPID is better without its baseline  (SEEDS="1 2"; BASELINE=--quick: in minutes)
	$(call run_experiment_in_blocks,studies,tables.txt)

arena-tuning: setup  ## tune the arena's learning rates, on other problems
	$(ACTIVATE) snakemake --cores $(CORES) --configfile params.yaml $(TUNING) -- arena
	$(ACTIVATE) python -m reports.tuning --configfile params.yaml $(TUNING) \
		--record experiments/arena-tuning.csv --write experiments/arena.yaml

test: setup  ## run the tests, with a tiny pipeline  (WORKERS=2)
	$(ACTIVATE) $(PYTEST) -m "not slow and not gpu"

test-all: setup  ## run the slow tests too
	$(ACTIVATE) $(PYTEST) -m "not gpu" --ignore=tests/end_to_end
	$(ACTIVATE) python -m pytest -m "not gpu" tests/end_to_end  # one at a time: each uses two cores

test-docs: setup  ## run the short commands of the documents in a fresh clone
	$(ACTIVATE) python -m tests.commands

test-faults: setup  ## inject real faults, and list the outcomes  (WRITE=1 updates docs/)
	$(ACTIVATE) $(PYTEST) tests/faults $(if $(WRITE),--record-faults)
	$(if $(WRITE),$(ACTIVATE) python -m tests.documents --write)

test-processors: setup  ## run numeric tests as on processors without AVX2 and AVX-512
	$(ACTIVATE) ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
		$(PYTEST) -m "not slow and not gpu" $(NUMERIC)
	$(ACTIVATE) ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
		$(PYTEST) -m "not slow and not gpu" $(NUMERIC)

# Downloads some GB into .versions/ and takes most of an hour (docs/versions.md).
test-versions: setup  ## test with the lowest and the newest packages  (PARTS=lowest, WRITE=1 updates docs/)
	$(ACTIVATE) python -m tests.versions $(PARTS) --workers $(WORKERS) $(if $(WRITE),--record)
	$(if $(WRITE),$(ACTIVATE) python -m tests.documents --write)

# Takes hours, one mutant at a time. Mutants with a result in mutants.jsonl are not tested again.
mutants: setup  ## change code at random, and see whether tests fail  (MUTANTS=--count=200)
	$(ACTIVATE) python -m tests.mutants $(MUTANTS)

test-gpu: setup  ## run the tests that need a GPU; skips them if there is none
	$(ACTIVATE) python -m pytest -m gpu

# Needs neither network nor this environment (docs/servers.md). To resume, run it again.
gpu:  ## GPU tests and benchmark  (GPU_BENCH=--tiny: on a CPU, into benchmarks/gpu/)
	@$(or $(wildcard .venv/bin/python),python3) -m performance.gpu $(GPU_BENCH)

# Run nothing else on the machine meanwhile. Options for BENCH: python -m performance.bench -h
bench: setup  ## measure speed and memory; writes performance/results/  (BENCH=--quick: benchmarks/quick/)
	$(ACTIVATE) snakemake --cores $(CORES) models/tiny-qwen2/manifest.json
	$(ACTIVATE) python -m performance.bench $(BENCH)

# In an environment of its own, which needs neither PyTorch nor this package (docs/site/).
DOCS_PYTHON := .venv-docs/bin/python
.venv-docs/installed: requirements/docs.txt
	@echo "Installing requirements/docs.txt into .venv-docs"
	@$(PYTHON) -m venv --clear .venv-docs
	@$(DOCS_PYTHON) -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes \
		--only-binary :all: -r requirements/docs.txt
	@touch $@

docs: .venv-docs/installed  ## build the documentation site into site/; a dead link is an error
	$(DOCS_PYTHON) docs/site/stage.py
	.venv-docs/bin/zensical build --clean --strict
	$(DOCS_PYTHON) docs/site/check.py

docs-serve: docs  ## build the site, and show it at http://localhost:8000
	$(DOCS_PYTHON) -m http.server --bind 127.0.0.1 --directory site 8000

figures-of-docs: setup  ## compare figures in the documents with results  (WRITE=1 updates them)
	$(ACTIVATE) python -m tests.documents $(if $(WRITE),--write)

lint: setup  ## run ruff, and mypy for types
	$(ACTIVATE) ruff check . && ruff format --check . && mypy

lock:  ## resolve requirements/*.in again
	$(PYTHON) requirements/lock.py

dist: setup  ## build and check the distributions of a release, in dist/
	$(ACTIVATE) python -m tests.release

clean:  ## delete all results, also of named experiments and the arena; keeps the environment
	rm -rf data models distilled runs evaluations logs benchmarks experiments/*/
	rm -rf reports/tables.tex reports/tables.txt reports/appendix.tex reports/appendix.txt
	rm -rf reports/report.html reports/manifest.json reports/figures
	rm -rf reports/experiment reports/studies reports/arena
