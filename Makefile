# Everything a developer or a release does, each by one word. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help run demo test soak lint manifests bench bench-report lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml envtest/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cfo needs Python 3.11 or newer, not %s; name one with PYTHON=..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev]'
	@touch $@

run: $(VENV)/.installed ## Run the operator on the embedded control plane with the samples, until interrupted
	$(BIN)/cfo run --embedded --apply config/samples --overview

demo: $(VENV)/.installed ## The same, but stop when every sample has settled (fails after 60 s)
	$(BIN)/cfo run --embedded --apply config/samples --overview --until-settled 60

TEST_JOBS ?= 2
test: $(VENV)/.installed ## Run the tests (TEST_JOBS at a time)
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal
	cd envtest && $(abspath $(BIN))/python -m pytest -n $(TEST_JOBS) --dist worksteal

SOAK_SECONDS ?= 180
SOAK_SEED    ?= 0

soak: $(VENV)/.installed ## Let everything fail at once, by chance, for SOAK_SECONDS (repeat with SOAK_SEED)
	CFO_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 2)) CFO_SOAK_SEED=$(SOAK_SEED) $(BIN)/python -m pytest -s -k test_soak test/integration/test_faults_soak.py

lint: $(VENV)/.installed ## Check style, types, layers and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python hack/generate.py --check

manifests: $(VENV)/.installed ## Write what is generated from code
	$(BIN)/python hack/generate.py

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev,bench]'
	@touch $@

BENCH       ?=
BENCH_FLAGS ?=
BENCH_JSON  ?= build/bench/$(shell date -u +%Y%m%dT%H%M%SZ).json
RESULTS     ?= $(lastword $(sort $(wildcard build/bench/*.json)))

bench: $(VENV)/.bench ## Run the benchmarks BENCH="start sync*" (all) with BENCH_FLAGS=--quick; they print, they do not judge
	@set -f; $(BIN)/python -m test.bench run $(BENCH) $(BENCH_FLAGS) --json $(BENCH_JSON)

bench-report: $(VENV)/.bench ## Write the tables and plots of docs/performance.md from RESULTS (the last of build/bench)
	$(BIN)/python hack/bench-report $(RESULTS)

lock: $(VENV)/.installed ## Renew constraints.txt, the versions that installs are made with
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --upgrade --no-emit-index-url --no-header \
		--output-file constraints.txt pyproject.toml envtest/pyproject.toml

include hack/deploy.mk

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
