# The targets that developers type. The others are in hack/*.mk; CONTRIBUTING.md lists them.
PYTHON    ?= python3
VENV      ?= .venv
BIN       := $(VENV)/bin
INSTALL    = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run demo test lint manifests docs bench fuzz deploy clean

help:
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  %-10s %s\n", $$1, $$2}' Makefile
	@echo 'Other targets: see "Other targets" in CONTRIBUTING.md.'

$(VENV)/.installed: pyproject.toml envtest/pyproject.toml handlers/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cfo needs Python 3.11 or newer, not %s; set PYTHON=..." % sys.version.split()[0])'
	@echo 'Creating $(VENV): downloading the dependencies of cfo and all development tools, once ...'
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e './envtest[dev]' -e '.[dev]' -e './handlers[dev]'
	@echo 'Installed.'
	@touch $@

$(VENV)/.types $(VENV)/.docs $(VENV)/.bench $(VENV)/.browser: $(VENV)/.installed
	$(INSTALL) 'codeflare-operator[$(patsubst .%,%,$(@F))]'
	@touch $@

# SAMPLES=all: also Flux Framework, InferenceStacks and larger workloads.
SAMPLES ?=
APPLY    = --apply config/samples $(if $(SAMPLES),--apply config/samples/$(SAMPLES))
# NAMESPACE of the environment or the command line; hack/deploy.mk has a default for other targets.
RUN_FLAGS := $(if $(NAMESPACE),,--embedded $(APPLY))
run: $(VENV)/.installed ## Run the operator and samples (SAMPLES=all: of all kinds) on the embedded control plane; with NAMESPACE, only the operator, on your cluster
	$(BIN)/cfo run $(RUN_FLAGS)

demo: $(VENV)/.installed ## Like run, but stop when every sample has settled (fails after 60 s)
	$(BIN)/cfo run --embedded $(APPLY) --until-settled 60

# Tests start hundreds of processes, each of which would compile all modules.
test fuzz: export PYTHONDONTWRITEBYTECODE :=

# Twice the cores of a small machine: for almost half of its time, a test waits for leases, timers and processes.
TEST_JOBS    ?= 4
PYTEST_FLAGS ?=
PARALLEL      = -n $(TEST_JOBS) --dist worksteal $(PYTEST_FLAGS)
SUITES        = cfo envtest handlers
test: $(VENV)/.installed ## Run the tests of all three distributions (TEST_JOBS in parallel, with PYTEST_FLAGS), also if the first fail
	@$(MAKE) --no-print-directory --keep-going $(SUITES:%=test-%)

lint: lint-code lint-types lint-project lint-patterns ## Check style, types, layers, generated files and prose (with -j2, two checks at a time)

manifests: $(VENV)/.installed ## Write the files that are generated from code
	$(BIN)/python -m hack.generate

docs: $(VENV)/.docs ## Build the site of all Markdown pages and the API reference in build/site, and check the links
	$(BIN)/python -m mkdocs build --strict

BENCH       ?=
BENCH_FLAGS ?=
BENCH_JSON  ?= build/bench/$(shell date -u +%Y%m%dT%H%M%SZ).json
bench: $(VENV)/.bench ## Run the benchmarks BENCH="start sync*" (default: all) with BENCH_FLAGS=--quick; measured values never fail the run
	@set -f; $(BIN)/python -m test.bench run $(BENCH) $(BENCH_FLAGS) --json $(BENCH_JSON)

FUZZ_EXAMPLES ?= 20000
fuzz: $(VENV)/.installed ## Fuzz the webhooks, the controllers' functions and the configuration with FUZZ_EXAMPLES random inputs
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest $(PARALLEL) --timeout 0 test/fuzz

deploy: cluster $(VENV)/.installed ## Install the operator IMG into NAMESPACE (DEPLOY_FLAGS="--with appwrapper")
	$(BIN)/cfo manifests --namespace $(NAMESPACE) --image $(IMG) $(DEPLOY_FLAGS) | \
		$(KUBECTL) apply --server-side --force-conflicts -f -
	$(KUBECTL) rollout status --namespace $(NAMESPACE) deployment/codeflare-operator-manager --timeout 180s

clean: ## Remove the files that the targets create
	rm -rf $(VENV) build dist *.egg-info envtest/build envtest/src/*.egg-info handlers/build handlers/src/*.egg-info \
		 .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

include hack/lint.mk hack/tools.mk hack/test.mk hack/deploy.mk
