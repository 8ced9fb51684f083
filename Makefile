# Targets for developers. Targets for clusters, images and releases are in hack/deploy.mk. `make help` lists all targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help run demo test test-tools test-programs test-envtest test-envtest-musl test-install test-releases test-sdk test-clients test-kopf-examples fuzz soak chaos lint docs manifests bench bench-report lock clean
.PHONY: test-browser audit sbom base-images base-images-check

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml envtest/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cfo needs Python 3.11 or newer, not %s; set PYTHON=..." % sys.version.split()[0])'
	@echo 'Installing cfo and all development tools to $(VENV), which takes about a minute ...'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev]'
	@echo 'Installed.'
	@touch $@

run: $(VENV)/.installed ## Run the operator and the samples on the embedded control plane, until interrupted
	$(BIN)/cfo run --embedded --apply config/samples --overview

demo: $(VENV)/.installed ## Like run, but stop when every sample has settled (fails after 60 s)
	$(BIN)/cfo run --embedded --apply config/samples --overview --until-settled 60

# Tests start hundreds of processes, each of which would compile all modules.
test test-envtest test-programs test-releases fuzz: export PYTHONDONTWRITEBYTECODE :=

TEST_JOBS ?= 2
test: $(VENV)/.installed ## Run the tests of both distributions (TEST_JOBS in parallel)
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal
	cd envtest && $(abspath $(BIN))/python -m pytest -n $(TEST_JOBS) --dist worksteal

test-envtest: $(VENV)/.installed ## Run the tests of envtest
	cd envtest && $(abspath $(BIN))/python -m pytest -n $(TEST_JOBS) --dist worksteal

# The library of CEL has no wheel for musl; test/conftest.py leaves out the tests that need it.
test-envtest-musl: ## Run the tests of envtest in an Alpine container (needs docker)
	$(ENGINE) run --rm --volume "$(CURDIR)/envtest:/src:ro" --env TEST_JOBS=$(TEST_JOBS) python:3.13-alpine sh -euc '\
		apk add --no-cache bash && cp -r /src /tmp/envtest && cd /tmp/envtest && sed -i /cel-expr-python/d pyproject.toml && \
		python -m pip install --quiet --disable-pip-version-check -e ".[dev]" && \
		python -m pytest -n "$$TEST_JOBS" --dist worksteal'

test-programs: $(VENV)/.installed ## Run the integration tests on the programs of "envtest assets" instead of the embedded control plane
	KUBEBUILDER_ASSETS="$$($(abspath $(BIN))/envtest assets)" $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal test/integration

test-tools: ## Install promtool from Debian's or Ubuntu's packages; without it, the tests of the alerts are skipped
	$(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get update && apt-get install --yes --no-install-recommends prometheus'

test-install: ## Install each distribution separately in a fresh virtual environment and run a smoke test
	PYTHON=$(PYTHON) .ci/test-install

test-releases: $(VENV)/.installed ## Run a sequence of releases and hotfixes in a scratch clone
	$(BIN)/python -m pytest -m nightly test/integration/test_release.py

FUZZ_EXAMPLES ?= 20000

fuzz: $(VENV)/.installed ## Fuzz the webhooks, the controllers' functions and the configuration with FUZZ_EXAMPLES random inputs
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal --timeout 0 test/fuzz

SOAK_SECONDS ?= 180
SOAK_SEED    ?= 0

soak: $(VENV)/.installed ## Inject random faults, then run hostile tenants, together for SOAK_SECONDS (SOAK_SEED repeats a run)
	CFO_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 3)) CFO_SOAK_SEED=$(SOAK_SEED) $(BIN)/python -m pytest -s -k test_soak \
		test/integration/test_faults_soak.py test/integration/hostile/test_soak.py

chaos: $(VENV)/.installed ## Run this operator and kopf operators with a fault at each of their writes, for several minutes
	$(BIN)/python -m pytest -s -m nightly test/integration/test_chaos.py
	cd envtest && $(abspath $(BIN))/python -m pytest -s -m nightly

$(VENV)/.browser: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev,browser]'
	@touch $@

test-browser: $(VENV)/.browser ## Test the page of the dashboard in the Chromium on PATH; screenshots are in build/screenshots
	$(BIN)/python -m pytest -m browser test/browser

SDK        := build/sdk
SDK_OLDEST ?= 0.30.0
$(SDK)/newest/.installed: config/stack.yaml | $(VENV)/.installed
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		"codeflare-sdk==$$($(BIN)/python -m hack.release.stack CodeFlare-SDK)"
	@touch $@

$(SDK)/oldest/.installed: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check "codeflare-sdk==$(SDK_OLDEST)"
	@touch $@

test-sdk: $(VENV)/.installed $(SDK)/newest/.installed $(SDK)/oldest/.installed ## Test releases of the CodeFlare SDK from PyPI: the one in config/stack.yaml, and SDK_OLDEST
	CODEFLARE_SDK=$(SDK) $(BIN)/python -m pytest -s test/sdk

CLIENTS      := build/clients
NODE_RELEASE ?= $(shell node -p 'parseInt(process.versions.node) < 22 ? "1" : "latest"' 2>/dev/null)
$(CLIENTS)/python/.installed: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check kubernetes kubernetes_asyncio kopf
	@touch $@

# Release 2 of the client needs Node 22. Without npm, its test is skipped.
$(CLIENTS)/node/.installed: Makefile
	mkdir -p $(@D)
	if command -v npm >/dev/null; then npm install --silent --no-fund --no-audit --prefix $(@D) @kubernetes/client-node@$(NODE_RELEASE); fi
	@touch $@

test-clients: $(VENV)/.installed $(CLIENTS)/python/.installed $(CLIENTS)/node/.installed ## Test envtest with foreign clients: kubectl, and clients from PyPI and npm
	cd envtest && ENVTEST_CLIENTS=$(abspath $(CLIENTS)) $(abspath $(BIN))/python -m pytest -m clients

KOPF := build/kopf
$(KOPF)/.installed: Makefile
	rm -rf $(@D) && mkdir -p $(@D)/examples
	$(PYTHON) -m pip download -q --no-deps --no-binary kopf --dest $(@D) kopf
	tar xzf $(@D)/kopf-*.tar.gz -C $(@D) --strip-components=1
	$(PYTHON) -m pip install -q --target $(@D)/site pykube-ng
	touch $@

test-kopf-examples: $(VENV)/.installed $(KOPF)/.installed ## Run kopf's own examples with a changed import
	KOPF_EXAMPLES=$(abspath $(KOPF))/examples PYTHONPATH=$(abspath $(KOPF))/site $(BIN)/python -m pytest test/integration/test_kopf_examples.py

$(VENV)/.types: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev,types]'
	@touch $@

lint: $(VENV)/.types ## Check style, types, layers, generated files and prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@rm -rf build/types && $(BIN)/cfo new website-operator build/types >/dev/null
	cd build/types && MYPYPATH=$(CURDIR) $(abspath $(BIN))/python -m mypy --cache-dir $(CURDIR)/.mypy_cache/scaffold
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m hack.generate --check
	$(BIN)/python -m hack.prose

manifests: $(VENV)/.installed ## Write the files that are generated from code
	$(BIN)/python -m hack.generate

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev,docs]'
	@touch $@

docs: $(VENV)/.docs ## Build the site of all Markdown pages in build/site, and check the links between them
	$(BIN)/mkdocs build --strict

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e './envtest[dev]' -e '.[dev,bench]'
	@touch $@

BENCH       ?=
BENCH_FLAGS ?=
BENCH_JSON  ?= build/bench/$(shell date -u +%Y%m%dT%H%M%SZ).json
RESULTS     ?= $(lastword $(sort $(wildcard build/bench/*.json)))

bench: $(VENV)/.bench ## Run the benchmarks BENCH="start sync*" (default: all) with BENCH_FLAGS=--quick; measured values never fail the run
	@set -f; $(BIN)/python -m test.bench run $(BENCH) $(BENCH_FLAGS) --json $(BENCH_JSON)

bench-report: $(VENV)/.bench ## Write the tables and plots of docs/performance.md from RESULTS (default: the newest of build/bench)
	$(BIN)/python -m hack.bench_report $(RESULTS)

TOOLS := build/tools
$(TOOLS)/.installed: hack/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r hack/tools.txt
	@touch $@

COMPILE = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-emit-index-url --no-header
lock: $(TOOLS)/.installed ## Update the versions of dependencies that installs use, with hashes for the image and tools
	$(COMPILE) --all-extras --no-emit-package envtest --output-file constraints.txt pyproject.toml envtest/pyproject.toml
	$(COMPILE) --generate-hashes --constraints constraints.txt --output-file deploy/image/requirements.txt pyproject.toml
	$(COMPILE) --generate-hashes --output-file deploy/image/build-requirements.txt deploy/image/build-requirements.in
	$(COMPILE) --generate-hashes --constraints constraints.txt --output-file envtest/image/requirements.txt envtest/pyproject.toml
	cp deploy/image/build-requirements.txt envtest/image/build-requirements.txt
	$(COMPILE) --generate-hashes --output-file hack/tools.txt hack/tools.in

audit: $(TOOLS)/.installed ## Report known vulnerabilities of the dependencies in the image
	$(TOOLS)/bin/pip-audit --disable-pip --require-hashes --requirement deploy/image/requirements.txt

sbom: $(TOOLS)/.installed ## Write the software bill of materials of the operator, dist/cfo.cdx.json (CycloneDX)
	@mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-file dist/cfo.cdx.json deploy/image/requirements.txt

base-images: $(VENV)/.installed ## Pin the base images by their current digests (needs docker)
	$(BIN)/python -m hack.base_images --write
	$(BIN)/python -m hack.generate

base-images-check: $(VENV)/.installed ## Fail if a base image is not pinned by digest
	$(BIN)/python -m hack.base_images --strict

include hack/deploy.mk

clean: ## Remove the files that the targets create
	rm -rf $(VENV) build dist *.egg-info envtest/build envtest/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
