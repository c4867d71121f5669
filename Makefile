SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin

SECONDS := 600

KILLS := 1000

# tools/test-beside runs the others at the same time.
HERE := $(filter-out tests/jupyter/,$(wildcard tests/*/)) tests/jupyter/lab

.PHONY: help run test lint bench bench-snapshots fuzz storm clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 22

run: .venv/for-run ## Run the tour notebook under the kernel and say how it went
	@mkdir -p artifacts
	@$(BIN)/jupyter nbconvert --log-level=WARN --to notebook --execute notebooks/tour.ipynb \
	    --output-dir artifacts --output tour.ipynb
	@echo "Executed: $(CURDIR)/artifacts/tour.ipynb"
	@$(BIN)/python tools/summary.py artifacts/tour.ipynb

lint: .venv/for-test ## Check style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: .venv/for-test lint ## Set up what the tests need, then run all of them
	@tools/system-packages
	@mkdir -p artifacts
	@rm -f artifacts/junit*.xml .coverage .coverage.*
	tools/beside artifacts/beside.log tools/test-beside \
	    tools/twice rest $(BIN)/coverage run -m pytest $(HERE)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

bench: .venv/for-test ## Measure against stock ipykernel; figures are ratios
	$(BIN)/python tests/bench/bench.py

bench-snapshots: .venv/for-test ## Measure what snapshots cost, up to 4 GiB, and what a kill costs
	$(BIN)/python tests/bench/snapshots.py

fuzz: .venv/for-test ## Look for SECONDS=600 for a program around the guards, as long for a frame that does harm
	FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -s tests/fuzz

storm: .venv/for-test ## Kill the guest at KILLS=1000 random moments, under each of four conditions
	STORM_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/storm

clean: ## Remove everything that make has made
	rm -rf .venv build dist artifacts .coverage .coverage.* .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache

.venv/for-run: pyproject.toml $(wildcard kernelspec/*/*) tools/venv
	@tools/venv .venv "" "" nbconvert
	@touch $@

.venv/for-test: pyproject.toml $(wildcard kernelspec/*/*) tools/venv
	@tools/venv .venv test
	@touch $@
