SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
# Compiled once, not by every kernel and every test's worker again.
unexport PYTHONDONTWRITEBYTECODE

SECONDS := 600

KILLS := 1000

#: How many tests run at the same time; most of them wait for processes more than they compute.
JOBS := 4
PARALLEL := -q -n $(JOBS) --dist worksteal
#: Pure code, and what else runs before every commit: see docs/CONTRIBUTING.md.
QUICK := unit or quick

.PHONY: help run shape test test-unit test-all test-pythons coverage lint lint-style lint-types lint-docs \
    dist docs frameworks lab lessons gpu bench bench-work bench-fleet bench-limits scorecard fuzz storm mutants clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 22

run: .venv/for-run ## Run the tour notebook under the kernel and say how it went
	@mkdir -p artifacts
	@$(BIN)/jupyter nbconvert --log-level=WARN --to notebook --execute notebooks/tour.ipynb \
	    --output-dir artifacts --output tour.ipynb
	@echo "Executed: $(CURDIR)/artifacts/tour.ipynb"
	@$(BIN)/python tools/summary.py artifacts/tour.ipynb

lint: .venv/for-test ## Check style, types, import contracts and the documentation
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint-types lint-docs lint-style

lint-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

lint-types:
	$(BIN)/mypy

lint-docs:
	tools/site

ifdef FILE
test: .venv/for-test ## What to run before a commit: lint, unit and quick tests; FILE=… for one file or test
	$(BIN)/python -m pytest $(FILE)
else
test: .venv/for-test lint
	@tools/system-packages
	$(BIN)/python -m pytest $(PARALLEL) -m "$(QUICK)" --junit-xml=artifacts/junit-quick.xml
endif

test-unit: .venv/for-test ## Test pure code alone
	$(BIN)/python -m pytest $(PARALLEL) tests/unit

test-all: .venv/for-test ## Run every test there is on this Python, `make test` first
	@# The extension is built meanwhile: its packages take minutes to fetch. 3: they can't be had.
	@# So are the environments of frameworks over MCP: without one, its how-to is not tried.
	@mkdir -p artifacts; tools/lab > artifacts/lab.log 2>&1 & lab=$$!; \
	    tools/frameworks > artifacts/frameworks.log 2>&1 & frameworks=$$!; \
	    $(MAKE) --no-print-directory test || { kill $$lab $$frameworks; exit 1; }; \
	    wait $$frameworks || cat artifacts/frameworks.log; \
	    wait $$lab || [ $$? = 3 ] || { cat artifacts/lab.log; exit 1; }
	$(BIN)/python -m pytest $(PARALLEL) -m "not ($(QUICK))" --junit-xml=artifacts/junit-rest.xml

test-pythons: .venv/for-test ## Run what `make test` runs, without JupyterLab, on each other supported Python
	@tools/test-pythons $(PARALLEL) -m "$(QUICK)"

coverage: .venv/for-test ## Run every test under coverage; show lines, and lines of each promise
	@tools/system-packages
	@# Kernels of other users write there, too. What runs out of time under coverage is no fault.
	@export COVERAGE_FILE=$$(mktemp -d)/coverage; chmod 1777 $$(dirname $$COVERAGE_FILE); \
	    $(BIN)/coverage run -m pytest $(PARALLEL) || true; \
	    $(BIN)/coverage combine --quiet; \
	    $(BIN)/coverage report --ignore-errors --skip-covered --skip-empty; \
	    $(BIN)/coverage json --ignore-errors --quiet -o artifacts/coverage.json; \
	    rm -r $$(dirname $$COVERAGE_FILE)
	@$(BIN)/python tools/promises.py artifacts/coverage.json

shape: ## Show the shape of the source: lines, modules, noqas, late imports
	@$(BIN)/python tools/shape.py

docs: .venv/for-docs ## Build the site of the documentation
	@tools/site
	@echo "Built: $(CURDIR)/artifacts/site/index.html"

lab: .venv/for-test ## Check and build the JupyterLab extension; its wheel in jupyterlab/dist
	@tools/lab

frameworks: .venv/for-test ## Install the frameworks that have how-tos over MCP, CrewAI's gigabyte too; tests run the pages' code
	@tools/frameworks openai-agents crewai llamaindex autogen

lessons: .venv/for-test ## Run the lessons in JupyterLab; pictures of them in artifacts/
	@tools/system-packages
	CELLBLOCK_LESSONS=all $(BIN)/python -m pytest -q tests/jupyter/lab/test_lessons.py

dist: .venv/for-dist ## Build sdist and wheel into dist/, and check that they are reproducible and complete
	@tools/dist

gpu: .venv/for-test ## Try cells on this machine's GPU; skipped where it has none
	$(BIN)/python -m pytest tests/gpu

bench: .venv/for-test ## Measure a round trip and a start against stock ipykernel, as ratios; the quick parts of bench-work
	$(BIN)/python tests/bench/work.py round-trip
	$(BIN)/python tests/bench/work.py start

bench-work: .venv/for-test ## Measure what a user waits for; PART="cells --write" for one part, here with docs/performance.md
	-@$(BIN)/python -m pip install --quiet --disable-pip-version-check xeus-python
	$(BIN)/python tests/bench/work.py $(PART)

bench-fleet: .venv/for-test ## Measure many sandboxes, notebooks, tools and clients at once; PART=run for one part
	-@$(BIN)/python -m pip install --quiet --disable-pip-version-check smolagents sandlock
	$(BIN)/python tests/bench/fleet.py $(PART)

bench-limits: .venv/for-test ## Measure processor time and memory by amount of work; PART=check for one part
	$(BIN)/python tests/bench/limits.py $(PART)

scorecard: .venv/for-test ## Run outside suites against cellblock, ipykernel and smolagents; docs/scorecard.md. MATERIAL=folder
	@tools/system-packages
	$(BIN)/python tests/scorecard/scorecard.py $(SUITES) $(if $(MATERIAL),--material $(MATERIAL))

fuzz: .venv/for-test ## Look for SECONDS=600 for a program around the guards, as long for a frame that does harm
	FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/fuzz

storm: .venv/for-test ## Kill the guest at KILLS=1000 random moments, under each of four conditions
	STORM_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/storm

mutants: .venv/for-test ## Switch each protection off in a copy, and see that its tests notice; ONLY=part of a name
	@tools/system-packages
	@$(BIN)/python tests/mutants/run.py --jobs $(JOBS) $(addprefix --only ,$(ONLY))

clean: ## Remove everything that make has made
	rm -rf .venv build dist artifacts .coverage .coverage.* .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache jupyterlab/dist jupyterlab/lib \
	    jupyterlab/.yarn jupyterlab/node_modules jupyterlab/cellblock_lab/labextension

.venv/for-run: pyproject.toml $(wildcard kernelspec/*/*) tools/venv
	@tools/venv .venv "" "" nbconvert
	@touch $@

.venv/for-docs: pyproject.toml tools/venv
	@tools/venv .venv docs
	@touch $@

.venv/for-dist: pyproject.toml tools/venv
	@tools/venv .venv dist
	@touch $@

.venv/for-test: pyproject.toml $(wildcard kernelspec/*/*) tools/venv
	@tools/venv .venv test
	@touch $@
