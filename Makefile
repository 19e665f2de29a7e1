# make tables: the paper's tables, made here.    make test: the tests.
# Both set the environment up first. GPU=1 takes the environment for NVIDIA GPUs, and so do later
# calls; GPU= goes back.

PYTHONS := python3.13 python3.12 python3.11 python3
FITS := import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(firstword $(foreach one,$(PYTHONS),$(shell $(one) -c "$(FITS)" 2> /dev/null && echo $(one))))
CORES ?= 4
WORKERS ?= 2
GPU ?= $(if $(wildcard .venv/gpu),1)
LOCK := requirements/$(if $(GPU),gpu,cpu).txt
STAMP := .venv/installed-$(if $(GPU),gpu,cpu)
# An environment holds its path: activated where its folder was copied or moved to, it is the first.
MADE_IN := made=$$(sed -nE 's/^command = .* -m venv (--[^ ]+ )*//p' .venv/pyvenv.cfg 2> /dev/null)
FOREIGN := $(shell $(MADE_IN); test -z "$$made" -o "$$(readlink -f "$$made")" = "$$(readlink -f .venv)" \
	|| echo foreign)
ACTIVATE := . .venv/bin/activate &&
PYTEST := python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What floating point decides, to be run as on other processors.
NUMERIC := tests/algorithms tests/training/conformance \
	$(foreach name,drop_in forward generation savings trainer ungraded,tests/training/test_$(name).py)

.PHONY: help setup foreign tables studies arena arena-record arena-tuning test test-all test-docs \
	test-faults test-gpu test-processors mutants gpu bench figures-of-docs lint lock clean

help:
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 24

setup: $(STAMP)  ## only the environment: .venv, and a Lean if there is none

# A stamp stands for a whole environment: it goes before anything is changed. Without it, as after an
# interruption or for the other lock, the environment is made afresh, from what uv has downloaded.
$(STAMP): $(LOCK) pyproject.toml $(FOREIGN)
	@test "$$(uname)" = Linux || { \
		echo "The pipeline needs Linux, and this is $$(uname): take the container (docs/servers.md)," \
			"on Windows also WSL 2. pip install . brings the trainer alone."; exit 1; }
	@$(or $(PYTHON),false) -c "$(FITS)" 2> /dev/null || { \
		echo "$(or $(PYTHON),$(PYTHONS)): none is a Python 3.11 to 3.13 with its venv module." \
			"Install one (apt install python3-venv), or say make PYTHON=/path/to/python3.13"; exit 1; }
	@echo "Installing $(LOCK) into .venv"
	@test -e $@ || $(PYTHON) -m venv --clear .venv
	@rm -f .venv/installed-* && $(if $(GPU),touch,rm -f) .venv/gpu
	@.venv/bin/python requirements/install.py $(LOCK)
	@.venv/bin/rapid lean-setup || echo "No Lean: minif2f's cells will be em dashes (see above)."
	@touch $@

foreign:
	@$(MADE_IN); echo ".venv was made in $$made, and works only there: it is made anew for this folder"
	@rm -f .venv/installed-*

tables: setup  ## run the pipeline of params.yaml: reports/tables.tex  (CORES=4)
	$(ACTIVATE) snakemake --cores $(CORES) reports/tables.tex
	@cat reports/tables.txt

studies: setup  ## RAPID's parts, one at a time: reports/studies/report.html
	$(ACTIVATE) snakemake --cores $(CORES) studies
	@cat reports/studies/tables.txt

# Experiments of their own, resumable like all others: docs/arena.md. With ALGORITHM=mine RATE=1.0e-4 only
# that and PG are run, and held against experiments/arena-results.csv.
ARENA_NAME := arena$(patsubst --%,-%,$(ARENA))
RATE ?= 1.0e-4
MINE = --config name=arena-$(ALGORITHM) 'arena={only: [pg, $(ALGORITHM)], fields: { \
	mbpp_plus: {rates: {$(ALGORITHM): $(RATE)}}, math: {rates: {$(ALGORITHM): $(RATE)}}}}'
TUNING := experiments/arena.yaml experiments/arena-tuning.yaml

arena: setup  ## every algorithm on the same ground  (ARENA=--quick for each step in minutes)
	@test -z "$(ALGORITHM)" -o -e experiments/arena-results.csv || { \
		echo "experiments/arena-results.csv is not there: run make arena, then make arena-record"; \
		exit 1; }
	$(ACTIVATE) snakemake --cores $(CORES) --configfile params.yaml experiments/$(ARENA_NAME).yaml \
		$(if $(ALGORITHM),$(MINE)) -- arena
	@cat experiments/arena$(if $(ALGORITHM),-$(ALGORITHM),$(patsubst --%,-%,$(ARENA)))/reports/arena/tables.txt

# What the report is made from: small enough for Git.
RAW := experiments/arena-raw.tar.xz
SMALL := -name manifest.json -o -name summary.json -o -name evaluation.json -o -name curve.jsonl

arena-record:  ## keep what a whole arena found, for Git
	cp experiments/arena/reports/arena/results.csv experiments/arena-results.csv
	cp experiments/arena/reports/arena/tables.txt experiments/arena-tables.txt
	find experiments/arena -type f \( $(SMALL) \) | LC_ALL=C sort | \
		tar -cJf $(RAW) -T - --mtime=@0 --owner=0 --group=0 --mode=644

arena-tuning: setup  ## the learning rates of its algorithms, tried on other problems
	$(ACTIVATE) snakemake --cores $(CORES) --configfile params.yaml $(TUNING) -- arena
	$(ACTIVATE) python -m reports.tuning --configfile params.yaml $(TUNING) \
		--record experiments/arena-tuning.csv --write experiments/arena.yaml

test: setup  ## the tests, with the pipeline at its smallest  (WORKERS=2)
	$(ACTIVATE) $(PYTEST) -m "not slow and not gpu"

test-all: setup  ## the slow tests too
	$(ACTIVATE) $(PYTEST) -m "not gpu" --ignore=tests/end_to_end
	$(ACTIVATE) python -m pytest -m "not gpu" tests/end_to_end  # which take both cores

test-docs: setup  ## the short commands of the documents, in a fresh clone
	$(ACTIVATE) python -m tests.commands

test-faults: setup  ## faults injected for real, and a table of what survived  (WRITE=1 into docs)
	$(ACTIVATE) $(PYTEST) tests/faults $(if $(WRITE),--record-faults)
	$(if $(WRITE),$(ACTIVATE) python -m tests.documents --write)

test-processors: setup  ## the numeric tests as on processors without AVX2, and without AVX-512
	$(ACTIVATE) ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
		$(PYTEST) -m "not slow and not gpu" $(NUMERIC)
	$(ACTIVATE) ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
		$(PYTEST) -m "not slow and not gpu" $(NUMERIC)

# Hours, a mutant at a time: what was run is in mutants.jsonl, and is not run again.
mutants: setup  ## what the tests notice of random changes of the code  (MUTANTS=--count=200)
	$(ACTIVATE) python -m tests.mutants $(MUTANTS)

test-gpu: setup  ## the tests that need a GPU; says so where there is none
	$(ACTIVATE) python -m pytest -m gpu

# No network and no environment of ours needed: docs/servers.md. Once more goes on where it ended.
gpu:  ## GPU tests and benchmark with the Python that is there  (GPU_BENCH=--tiny on a CPU: benchmarks/gpu/)
	@$(or $(wildcard .venv/bin/python),python3) -m performance.gpu $(GPU_BENCH)

# Alone on the machine: what else runs is measured too. BENCH has options: python -m performance.bench -h
bench: setup  ## speed and memory: performance/results/  (BENCH=--quick: benchmarks/quick/)
	$(ACTIVATE) snakemake --cores $(CORES) models/tiny-qwen2/manifest.json
	$(ACTIVATE) python -m performance.bench $(BENCH)

figures-of-docs: setup  ## what the documents say otherwise than runs and results  (WRITE=1)
	$(ACTIVATE) python -m tests.documents $(if $(WRITE),--write)

lint: setup  ## ruff, and mypy for types
	$(ACTIVATE) ruff check . && ruff format --check . && mypy

lock:  ## resolve requirements/*.in anew
	$(PYTHON) requirements/lock.py

clean:  ## delete what jobs made, named experiments and the arena too; not the environment
	rm -rf data models distilled runs evaluations logs benchmarks experiments/*/
	rm -rf reports/tables.tex reports/tables.txt reports/appendix.tex reports/appendix.txt
	rm -rf reports/report.html reports/manifest.json reports/figures
	rm -rf reports/experiment reports/studies reports/arena
