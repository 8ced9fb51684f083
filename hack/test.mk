# The parts of `make test`, and tests beyond it, which the GitHub workflows run.
.PHONY: test-cfo test-envtest test-envtest-musl test-handlers test-programs test-tools test-install test-releases sweeps soak soak-programs faults chaos \
	test-browser test-upgrade test-sdk test-sdk-dev test-clients test-kopf-examples conformance differential

test-cfo test-envtest test-handlers test-programs test-releases: export PYTHONDONTWRITEBYTECODE :=
# An option of pytest, because programs that tests start would inherit PYTHONPATH.
test-cfo test-envtest test-handlers: PARALLEL += -o pythonpath=$(CURDIR)/hack/plugins -p shared_imports

test-cfo: $(VENV)/.installed ## Run the tests of cfo
	$(BIN)/python -m pytest $(PARALLEL)

test-envtest: $(VENV)/.installed ## Run the tests of envtest
	cd envtest && $(abspath $(BIN))/python -m pytest $(PARALLEL)

# The libraries of CEL and RE2 have no wheels for musl; test/conftest.py leaves out the tests that need them.
test-envtest-musl: ## Run the tests of envtest in an Alpine container (needs docker)
	$(ENGINE) run --rm --volume "$(CURDIR)/envtest:/src:ro" python:3.13-alpine sh -euc '\
		apk add --no-cache bash && cp -r /src /tmp/envtest && cd /tmp/envtest && sed -i -E "/cel-expr-python|google-re2/d" pyproject.toml && \
		python -m pip install --quiet --disable-pip-version-check -e ".[dev]" && \
		python -m pytest $(PARALLEL)'

test-handlers: $(VENV)/.installed ## Run the tests of cfo-handlers
	cd handlers && $(abspath $(BIN))/python -m pytest $(PARALLEL)

test-programs: $(VENV)/.installed ## Run the integration tests on the programs of "envtest assets" instead of the embedded control plane
	KUBEBUILDER_ASSETS="$$($(abspath $(BIN))/envtest assets)" $(BIN)/python -m pytest $(PARALLEL) test/integration

test-tools: ## Install promtool from Debian's or Ubuntu's packages; without it, the tests of the alerts are skipped
	$(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get update && apt-get install --yes --no-install-recommends prometheus'

test-install: dist ## Install each wheel and source distribution of dist/ in a fresh virtual environment and run a smoke test
	PYTHON=$(PYTHON) .ci/test-install

test-releases: $(VENV)/.installed ## Run a sequence of releases and hotfixes in a scratch clone
	$(BIN)/python -m pytest -m nightly test/integration/test_release.py

sweeps: $(VENV)/.installed ## Run the tests that repeat a scenario for each write, field, fault or recording with all cases, not a third of them
	CFO_SWEEPS=all $(BIN)/python -m pytest $(PARALLEL) -m sweep test/integration

UPGRADE_FROM ?= $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)
test-upgrade: $(VENV)/.installed ## Upgrade from the release or commit UPGRADE_FROM to HEAD with 30 objects of each kind, and roll back
	@test -n "$(UPGRADE_FROM)" || { echo 'UPGRADE_FROM=REVISION is missing: there is no tag of a release'; exit 2; }
	UPGRADE_FROM=$(UPGRADE_FROM) $(BIN)/python -m pytest -s -m nightly test/integration/test_upgrade.py

SOAK_SECONDS ?= 180
SOAK_SEED    ?= 0

soak: $(VENV)/.installed ## Inject random faults, then run hostile tenants, together for SOAK_SECONDS (SOAK_SEED repeats a run)
	CFO_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 3)) CFO_SOAK_SEED=$(SOAK_SEED) $(BIN)/python -m pytest -s -k test_soak \
		test/integration/test_faults_soak.py test/integration/hostile/test_soak.py

soak-programs: $(VENV)/.installed ## Run the hostile tenants for SOAK_SECONDS on the programs of "envtest assets"
	KUBEBUILDER_ASSETS="$$($(abspath $(BIN))/envtest assets)" CFO_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -s \
		test/integration/hostile/test_soak.py

FAULTS ?=
faults: $(VENV)/.installed ## Cause FAULTS="etcd* storm*" (default: all) on the programs in KUBEBUILDER_ASSETS, also in an update from UPGRADE_FROM
	@set -f; $(BIN)/python -m test.faults $(FAULTS) $(if $(UPGRADE_FROM),--previous $(UPGRADE_FROM))

chaos: $(VENV)/.installed ## Run this operator and kopf operators with a fault at each of their writes, for several minutes
	$(BIN)/python -m pytest -s -m nightly test/integration/test_chaos.py
	cd envtest && $(abspath $(BIN))/python -m pytest -s -m nightly

test-browser: $(VENV)/.browser ## Test the page of the dashboard in the Chromium on PATH; screenshots are in build/screenshots
	$(BIN)/python -m pytest -m browser test/browser

SDK        := build/sdk
SDK_OLDEST ?= 0.30.0
$(SDK)/newest/.installed: config/stack.yaml | $(VENV)/.installed
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		"codeflare-sdk==$$($(BIN)/python -m hack.release.stack CodeFlare-SDK)"
	@touch $@

$(SDK)/oldest/.installed: hack/test.mk
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check "codeflare-sdk==$(SDK_OLDEST)"
	@touch $@

test-sdk: $(VENV)/.installed $(SDK)/newest/.installed $(SDK)/oldest/.installed ## Test releases of the CodeFlare SDK from PyPI: the one in config/stack.yaml, and SDK_OLDEST
	CODEFLARE_SDK=$(SDK) $(BIN)/python -m pytest -s test/sdk

SDK_SOURCE ?= git+https://github.com/project-codeflare/codeflare-sdk@main
test-sdk-dev: $(VENV)/.installed ## Test the development version of the CodeFlare SDK (SDK_SOURCE)
	rm -rf build/sdk-dev && $(PYTHON) -m venv build/sdk-dev/newest
	build/sdk-dev/newest/bin/python -m pip install --quiet --disable-pip-version-check "$(SDK_SOURCE)"
	CODEFLARE_SDK=build/sdk-dev $(BIN)/python -m pytest -s test/sdk

CLIENTS      := build/clients
NODE_RELEASE ?= $(shell node -p 'parseInt(process.versions.node) < 22 ? "1" : "latest"' 2>/dev/null)
$(CLIENTS)/python/.installed: hack/test.mk
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check kubernetes kubernetes_asyncio kopf
	@touch $@

# Release 2 of the client needs Node 22. Without npm, its test is skipped.
$(CLIENTS)/node/.installed: hack/test.mk
	mkdir -p $(@D)
	if command -v npm >/dev/null; then npm install --silent --no-fund --no-audit --prefix $(@D) @kubernetes/client-node@$(NODE_RELEASE); fi
	@touch $@

test-clients: $(VENV)/.installed $(CLIENTS)/python/.installed $(CLIENTS)/node/.installed ## Test envtest with foreign clients: kubectl, and clients from PyPI and npm
	cd envtest && ENVTEST_CLIENTS=$(abspath $(CLIENTS)) $(abspath $(BIN))/python -m pytest -m clients

KOPF := build/kopf
$(KOPF)/.installed: hack/test.mk
	rm -rf $(@D) && mkdir -p $(@D)/examples
	$(PYTHON) -m pip download -q --no-deps --no-binary kopf --dest $(@D) kopf
	tar xzf $(@D)/kopf-*.tar.gz -C $(@D) --strip-components=1
	$(PYTHON) -m pip install -q --target $(@D)/site pykube-ng
	touch $@

test-kopf-examples: $(VENV)/.installed $(KOPF)/.installed ## Run kopf's own examples with a changed import
	cd handlers && KOPF_EXAMPLES=$(abspath $(KOPF))/examples PYTHONPATH=$(abspath $(KOPF))/site \
		$(abspath $(BIN))/python -m pytest test/integration/test_kopf_examples.py

E2E ?=
conformance: $(VENV)/.installed ## Run conformance specs of Kubernetes on envtest with the program e2e.test in E2E
	@test -n "$(E2E)" || { echo 'E2E=/path/to/e2e.test is missing: the program is in kubernetes-test-linux-amd64.tar.gz of a Kubernetes release'; exit 2; }
	cd envtest && $(abspath $(BIN))/python -m test.conformance $(CONFORMANCE_FLAGS) "$(abspath $(E2E))"

DIFFERENTIAL ?= --seed 1
differential: $(VENV)/.installed ## Send random requests to envtest and to the programs in KUBEBUILDER_ASSETS, and compare the answers
	@test -n "$(KUBEBUILDER_ASSETS)" || { echo 'KUBEBUILDER_ASSETS is missing: the folder of etcd and kube-apiserver'; exit 2; }
	cd envtest && $(abspath $(BIN))/python -m test.differential --kinds builtin $(DIFFERENTIAL)
	cd envtest && $(abspath $(BIN))/python -m test.differential --kinds custom $(DIFFERENTIAL)
