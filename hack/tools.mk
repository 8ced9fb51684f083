# Targets for what is pinned (dependencies, base images), and for docs/performance.md.
.PHONY: lock audit sbom base-images base-images-check bench-gate bench-report

TOOLS := build/tools
$(TOOLS)/.installed: hack/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r hack/tools.txt
	@touch $@

IMAGE   := deploy/image
COMPILE  = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-emit-index-url --no-header
lock: $(TOOLS)/.installed ## Update the versions of dependencies that installs use, with hashes for the image and tools
	$(COMPILE) --all-extras --no-emit-package envtest --no-emit-package codeflare-operator --output-file constraints.txt \
		pyproject.toml envtest/pyproject.toml handlers/pyproject.toml
	$(COMPILE) --generate-hashes --constraints constraints.txt --output-file $(IMAGE)/requirements.txt pyproject.toml
	$(COMPILE) --generate-hashes --output-file $(IMAGE)/build-requirements.txt $(IMAGE)/build-requirements.in
	$(COMPILE) --generate-hashes --constraints constraints.txt --output-file envtest/image/requirements.txt envtest/pyproject.toml
	cp $(IMAGE)/build-requirements.txt envtest/image/build-requirements.txt
	$(COMPILE) --generate-hashes --output-file hack/tools.txt hack/tools.in

audit: $(TOOLS)/.installed ## Report known vulnerabilities of the dependencies in the image
	$(TOOLS)/bin/pip-audit --disable-pip --require-hashes --requirement $(IMAGE)/requirements.txt

sbom: $(TOOLS)/.installed ## Write the software bill of materials of the operator, dist/codeflare-operator.cdx.json (CycloneDX)
	@mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-file dist/codeflare-operator.cdx.json $(IMAGE)/requirements.txt

base-images: $(VENV)/.installed ## Pin the base images by their current digests (needs docker)
	$(BIN)/python -m hack.base_images --write
	$(BIN)/python -m hack.generate

base-images-check: $(VENV)/.installed ## Fail if a base image is not pinned by digest
	$(BIN)/python -m hack.base_images --strict

GATE_FLAGS ?=
bench-gate: $(VENV)/.bench ## Fail if HEAD costs more than the commit before its branch (GATE_FLAGS="--base REVISION --runs N --limit 1.05")
	$(BIN)/python -m test.bench gate $(GATE_FLAGS)

RESULTS ?= $(lastword $(sort $(wildcard build/bench/*.json)))
bench-report: $(VENV)/.bench ## Write the tables and plots of docs/performance.md from RESULTS (default: the newest of build/bench)
	$(BIN)/python -m hack.bench_report $(RESULTS)
