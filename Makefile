SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin

SECONDS := 600

KILLS := 1000

# tools/test-beside runs the others at the same time.
HERE := $(filter-out tests/jupyter/,$(wildcard tests/*/)) tests/jupyter/lab

.PHONY: help run test lint docs lessons bench bench-batch bench-check bench-cluster bench-snapshots fuzz storm clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 22

run: .venv/for-run ## Run the tour notebook under the kernel and say how it went
	@mkdir -p artifacts
	@$(BIN)/jupyter nbconvert --log-level=WARN --to notebook --execute notebooks/tour.ipynb \
	    --output-dir artifacts --output tour.ipynb
	@echo "Executed: $(CURDIR)/artifacts/tour.ipynb"
	@$(BIN)/python tools/summary.py artifacts/tour.ipynb

lint: .venv/for-test ## Check style, types, import contracts and the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p artifacts
	tools/beside artifacts/site.log tools/site $(BIN)/mypy
	$(BIN)/lint-imports

test: .venv/for-test lint ## Set up what the tests need, then run all of them
	@tools/system-packages
	@mkdir -p artifacts
	@rm -f artifacts/junit*.xml .coverage .coverage.*
	tools/beside artifacts/beside.log tools/test-beside \
	    tools/twice rest $(BIN)/coverage run -m pytest $(HERE)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

docs: .venv/for-docs ## Build the site of the documentation
	@tools/site
	@echo "Built: $(CURDIR)/artifacts/site/index.html"

lessons: .venv/for-test ## Run the lessons in JupyterLab; pictures of them in artifacts/
	@tools/system-packages
	CELLBLOCK_LESSONS=all $(BIN)/python -m pytest -q tests/jupyter/lab/test_lessons.py

bench: .venv/for-test ## Measure against stock ipykernel, as ratios; then calls of tools
	$(BIN)/python tests/bench/bench.py
	$(BIN)/python tests/bench/tools.py

bench-snapshots: .venv/for-test ## Measure what snapshots cost, up to 4 GiB, and what a kill costs
	$(BIN)/python tests/bench/snapshots.py

bench-batch: .venv/for-test ## Measure cellblock run against nbconvert and nbclient, as ratios
	$(BIN)/python tests/bench/batch.py

bench-check: .venv/for-test ## Measure cellblock check over a thousand notebooks
	$(BIN)/python tests/bench/check.py

bench-cluster: .venv/for-test ## Measure cellblock run on a Dask cluster of this machine's, and model a larger one
	$(BIN)/python tests/bench/cluster.py

fuzz: .venv/for-test ## Look for SECONDS=600 for a program around the guards, as long for a frame that does harm
	FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/fuzz

storm: .venv/for-test ## Kill the guest at KILLS=1000 random moments, under each of four conditions
	STORM_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/storm

clean: ## Remove everything that make has made
	rm -rf .venv build dist artifacts .coverage .coverage.* .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache

.venv/for-run: pyproject.toml $(wildcard kernelspec/*/*) tools/venv
	@tools/venv .venv "" "" nbconvert
	@touch $@

.venv/for-docs: pyproject.toml tools/venv
	@tools/venv .venv docs
	@touch $@

.venv/for-test: pyproject.toml $(wildcard kernelspec/*/*) tools/venv
	@tools/venv .venv test
	@touch $@
