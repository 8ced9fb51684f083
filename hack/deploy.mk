# Targets for clusters, images and releases; the GitHub workflows run most of them.
NAMESPACE      ?= openshift-operators
REPOSITORY     ?= project-codeflare/cfo
REGISTRY       ?= quay.io/project-codeflare
IMG            ?= $(REGISTRY)/codeflare-operator:dev
TAGS           ?= $(IMG)
VERSION        := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' cfo/version.py)
BUNDLE_IMG     ?= $(REGISTRY)/codeflare-operator-bundle:v$(VERSION)
CATALOG_IMG    ?= $(REGISTRY)/codeflare-operator-catalog:latest
DEV_VERSION     = $(shell echo $(VERSION) | awk -F. '{print $$1 "." $$2 + 1 ".0"}')-dev.$(shell git rev-list --count HEAD)
DEV_TREE       ?= build/dev
DEV_IMG         = $(REGISTRY)/codeflare-operator:v$(DEV_VERSION)
DEV_BUNDLE_IMG  = $(REGISTRY)/codeflare-operator-bundle:v$(DEV_VERSION)
DEV_CATALOG_IMG = $(REGISTRY)/codeflare-operator-catalog:dev
TREE           ?= .
BUILD_FLAGS    ?=
PLATFORMS      ?= linux/amd64,linux/arm64
KUBECTL        ?= kubectl
DEPLOY_FLAGS   ?=
ENGINE         ?= docker
KIND           ?= kind
KIND_CLUSTER   ?= codeflare
INGRESS_NGINX  ?= controller-v1.12.1
OLM            ?= v1.6.0
STACK           = $(BIN)/python -m hack.release.stack

.PHONY: cluster install uninstall undeploy dist image image-push image-push-ref image-lint bundle bundle-push catalog-push bundle-build-push \
	catalog-build-push kind-e2e setup-e2e deploy-e2e test-e2e olm-e2e dev-release olm-upgrade-e2e nightly \
	release release-push release-images release-stable release-draft release-download release-plan helm-repository \
	apply job redo

# kubectl apply would report only that it cannot download the schema for its validation.
cluster:
	@error=$$($(KUBECTL) get --raw /version --request-timeout 10s 2>&1 >/dev/null) || { \
		echo "Error: no cluster responds ($$(echo "$$error" | tail -n 1)); select one with kubectl config use-context, or set KUBECONFIG" >&2; \
		exit 1; \
	}

# Other tools own fields once they have changed them, such as Helm an earlier version of a CRD, or kubectl scale replicas.
# Without --force-conflicts, they would refuse the version that is installed here.
install: cluster ## Install the CRDs on the cluster of your kubeconfig
	$(KUBECTL) apply --server-side --force-conflicts --kustomize config/crd

uninstall: cluster ## Delete the CRDs, and with them all AppWrappers, Flux objects and InferenceStacks, while an operator runs
	$(KUBECTL) delete --ignore-not-found --kustomize config/crd

undeploy: $(VENV)/.installed ## Remove the operator from NAMESPACE, in an order that avoids stuck deletions (YES=--yes: do not ask)
	$(BIN)/cfo uninstall --namespace $(NAMESPACE) $(YES)

# Each wheel is built from the source distribution, so stale modules in build/ are in neither.
dist: $(TOOLS)/.installed ## Build wheel and source distribution of codeflare-operator, envtest and cfo-handlers into dist/, and check them
	rm -f dist/*.whl dist/*.tar.gz
	$(TOOLS)/bin/python -m build --no-isolation --outdir dist .
	$(TOOLS)/bin/python -m build --no-isolation --outdir dist ./envtest
	$(TOOLS)/bin/python -m build --no-isolation --outdir dist ./handlers
	$(TOOLS)/bin/twine check --strict dist/*.whl dist/*.tar.gz

HELM_REPOSITORY ?= dist/helm
helm-repository: $(VENV)/.installed ## Add the packages of the Helm charts to HELM_REPOSITORY, and write its index
	$(BIN)/python -m hack.release.helm_repository $(HELM_REPOSITORY)

image: ## Build the image IMG, and print its size
	$(ENGINE) build --tag $(IMG) --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) $(TREE)
	@$(ENGINE) image inspect --format 'size: {{.Size}} bytes' $(IMG)

image-push: ## Build for PLATFORMS and push all TAGS, with SBOM and provenance
	$(ENGINE) buildx build --push --sbom=true --provenance=mode=max --platform $(PLATFORMS) $(TAGS:%=--tag %) \
		--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) .

image-push-ref: ## Build and push the image with the tags for REF (main or a tag)
	$(MAKE) image-push TAGS="$$(python3 -m hack.release.image_tags $(REGISTRY)/codeflare-operator $(REF))"

image-lint: $(TOOLS)/.installed ## Check the Dockerfiles
	$(TOOLS)/bin/hadolint Dockerfile envtest/Dockerfile

bundle: $(VENV)/.installed ## Write and validate the OLM bundle and catalog, with the releases of all tags
	$(BIN)/python -m hack.release.history
	$(BIN)/python -m hack.generate
	$(BIN)/python -m hack.generate.olm.validate --released

bundle-push: ## Build and push the image of the bundle
	$(ENGINE) build $(BUILD_FLAGS) --file $(TREE)/deploy/bundle.Dockerfile --tag $(BUNDLE_IMG) $(TREE)
	$(ENGINE) push $(BUNDLE_IMG)

catalog-push: $(VENV)/.installed ## Build and push the image of the catalog; fail if a released bundle is missing in it
	cd $(TREE) && $(abspath $(BIN))/python -m hack.generate.olm.validate --released
	$(ENGINE) build $(BUILD_FLAGS) --file $(TREE)/deploy/catalog.Dockerfile --tag $(CATALOG_IMG) $(TREE)
	$(ENGINE) push $(CATALOG_IMG)

# Targets for the operators of InferenceStacks: one bundle for each major version, and their catalog.
STACK_BUNDLE      ?= $(REGISTRY)/inference-stack-operator-bundle
STACK_CATALOG_IMG ?= $(REGISTRY)/inference-stack-operator-catalog:latest

bundle-build-push: bundle ## Build and push the operator, and the InferenceStack bundle of each major version
	cd $(TREE) && $(abspath $(BIN))/python -m hack.generate.olm.validate --released --stacks
	$(MAKE) image-push TAGS=$(REGISTRY)/codeflare-operator:v$(VERSION)
	@set -e; for file in deploy/inference-stack/v*/bundle.Dockerfile; do \
		image=$(STACK_BUNDLE):v$$(sed -n 's/^LABEL org.opencontainers.image.version=//p' $(TREE)/$$file); \
		$(ENGINE) build $(BUILD_FLAGS) --file $(TREE)/$$file --tag $$image $(TREE); \
		$(ENGINE) push $$image; done

catalog-build-push: $(VENV)/.installed ## Build and push the catalog of InferenceStack bundles; fail if a released one is missing
	cd $(TREE) && $(abspath $(BIN))/python -m hack.generate.olm.validate --released --stacks
	$(ENGINE) build $(BUILD_FLAGS) --file $(TREE)/deploy/inference-stack/catalog.Dockerfile --tag $(STACK_CATALOG_IMG) $(TREE)
	$(ENGINE) push $(STACK_CATALOG_IMG)

kind-e2e: ## Create a kind cluster for the end-to-end tests
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
	$(KUBECTL) kustomize config/e2e | sed 's|image: .*/codeflare-operator:.*|image: $(IMG)|' | $(KUBECTL) apply --server-side -f -
	$(KUBECTL) rollout status --namespace openshift-operators deployment/codeflare-operator-manager --timeout 180s

test-e2e: $(VENV)/.installed ## Run the end-to-end tests on the cluster of your kubeconfig
	CODEFLARE_E2E=1 $(BIN)/python -m pytest -s test/e2e

olm-e2e: ## Install OLM v1, and the newest release through it, on the cluster of your kubeconfig
	@mkdir -p build
	curl --fail --silent --show-error --location --output build/install-olm.sh \
		https://github.com/operator-framework/operator-controller/releases/download/$(OLM)/install.sh
	@echo '$(OLM_SHA256)  build/install-olm.sh' | sha256sum --check --strict --quiet || \
		{ echo 'build/install-olm.sh: set OLM_SHA256 to the SHA-256 checksum of this file in the release $(OLM) of OLM'; exit 1; }
	bash build/install-olm.sh
	@if [ -z "$$(git tag --list 'v*')" ]; then echo 'no release to install'; else \
		$(KUBECTL) apply -f config/olm/clustercatalog.yaml && \
		$(KUBECTL) wait --for=condition=Serving clustercatalog/codeflare-operator-catalog --timeout 300s && \
		$(KUBECTL) apply -f config/olm/clusterextension.yaml && \
		$(KUBECTL) wait --for=condition=Installed clusterextension/codeflare-operator --timeout 300s; fi

dev-release: $(VENV)/.installed ## Create a pre-release of HEAD in the clone DEV_TREE, which is never pushed
	rm -rf $(DEV_TREE)
	git clone --quiet . $(DEV_TREE)
	git -C $(DEV_TREE) switch --quiet --create dev-release
	git -C $(DEV_TREE) config user.name dev-release
	git -C $(DEV_TREE) config user.email dev-release@localhost
	cd $(DEV_TREE) && $(abspath $(BIN))/python -m hack.release v$(DEV_VERSION) --partial --check true --run

# The manager's image is loaded into kind. OLM pulls the other two images, so they are pushed, under tags that no release
# uses.
olm-upgrade-e2e: dev-release ## Let OLM v1 upgrade to a pre-release of HEAD, and wait for it
	$(MAKE) image TREE=$(DEV_TREE) VERSION=$(DEV_VERSION) IMG=$(DEV_IMG)
	$(KIND) load docker-image --name $(KIND_CLUSTER) $(DEV_IMG)
	$(MAKE) bundle-push catalog-push TREE=$(DEV_TREE) BUNDLE_IMG=$(DEV_BUNDLE_IMG) CATALOG_IMG=$(DEV_CATALOG_IMG) \
		BUILD_FLAGS='--label quay.expires-after=2w'
	sed 's/:latest$$/:dev/' $(DEV_TREE)/config/olm/clustercatalog.yaml | $(KUBECTL) apply -f -
	sed 's/version: .*\.x$$/version: $(DEV_VERSION)/' $(DEV_TREE)/config/olm/clusterextension.yaml | $(KUBECTL) apply -f -
	$(KUBECTL) wait --for=jsonpath='{.status.install.bundle.version}'=$(DEV_VERSION) clusterextension/codeflare-operator --timeout 600s

# AppWrappers are part of the operator, whose image is :dev. The SDK has no image: `make test-sdk-dev` installs its main.
nightly: setup-e2e ## Run the end-to-end tests with the development image of each component
	$(KUBECTL) set image deployment/kuberay-operator kuberay-operator=quay.io/kuberay/operator:nightly
	$(KUBECTL) apply --server-side --force-conflicts -k 'github.com/kubernetes-sigs/kueue/config/default?ref=main'
	$(KUBECTL) rollout status deployment/kuberay-operator --timeout 300s
	$(KUBECTL) rollout status --namespace kueue-system deployment/kueue-controller-manager --timeout 300s
	$(MAKE) deploy test-e2e DEPLOY_FLAGS="--with appwrapper"

# The queue of config/samples on the cluster of your kubeconfig, whose operator needs flux.enabled: true.
FLUX     := config/samples/00-namespace.yaml config/samples/all/flux-queue.yaml
FLUX_JOB := $(or $(FLUX_JOB),flux-job-$(shell date +%s))
FLUX_OF   = --namespace data-science
apply: ## Apply the FluxSetup and the FluxJobs of config/samples to the cluster of your kubeconfig
	$(KUBECTL) apply $(FLUX:%=--filename %)

job: ## Submit one more FluxJob, FLUX_JOB, to that queue, and wait until it has finished
	printf 'apiVersion: flux-framework.org/v1alpha1\nkind: FluxJob\nmetadata: {name: %s}\nspec: {size: 2, command: hostname}\n' \
		'$(FLUX_JOB)' | $(KUBECTL) create $(FLUX_OF) --filename -
	$(KUBECTL) wait $(FLUX_OF) --for=condition=JobFinished fluxjob/$(FLUX_JOB) --timeout 600s

redo: ## Delete the queue of config/samples with its jobs, apply it again, and submit a job
	$(KUBECTL) delete $(FLUX_OF) fluxjobs,fluxsetups --all --wait
	$(MAKE) apply job

# ARGS are passed through the environment: a shell never parses them.
export ARGS
release: $(VENV)/.installed ## Release: make release ARGS="v1.2.3 --sdk ... --appwrapper ... --kuberay ... --kueue ..."
	@$(BIN)/python -m hack.release --run --arguments-from ARGS

release-push: ## Push branch and tags atomically
	git push --atomic --follow-tags origin HEAD

release-images: ## Push image, bundle and catalog of the release at HEAD
	@git tag --points-at HEAD | grep -qxF 'v$(VERSION)' || \
		{ echo 'release-images: HEAD is not tagged v$(VERSION)' >&2; exit 2; }
	$(MAKE) image-push-ref REF=v$(VERSION)
	$(MAKE) bundle-push catalog-push

# The tag exists since release-images; nothing is built again.
release-stable: ## Let :stable be the release at HEAD, once the pull request with its bundle is merged
	@git tag --points-at HEAD | grep -qxF 'v$(VERSION)' || \
		{ echo 'release-stable: HEAD is not tagged v$(VERSION)' >&2; exit 2; }
	@image=$$(python3 -m hack.release.image_tags --stable $(REGISTRY)/codeflare-operator v$(VERSION)) && \
		$(ENGINE) buildx imagetools create --tag $(REGISTRY)/codeflare-operator:stable "$$image"

release-draft: ## Create a draft release on GitHub with the distributions in dist/ and the release notes (needs gh)
	gh release create v$(VERSION) --draft --verify-tag --title v$(VERSION) $(if $(findstring -,$(VERSION)),--prerelease) \
		--notes-file dist/release-v$(VERSION)/notes.md dist/*.whl dist/*.tar.gz dist/*.cdx.json

release-download: $(TOOLS)/.installed ## Download the distributions of a release into dist/, and check who built them (needs gh)
	rm -f dist/*.whl dist/*.tar.gz
	gh release download v$(VERSION) --dir dist --pattern '*.whl' --pattern '*.tar.gz'
	@set -e; for file in dist/*.whl dist/*.tar.gz; do \
		gh attestation verify $$file --repo $(REPOSITORY) --signer-workflow $(REPOSITORY)/.github/workflows/release.yaml; done
	$(TOOLS)/bin/twine check --strict dist/*.whl dist/*.tar.gz

release-plan: $(VENV)/.installed ## Print the plan of a release: make release-plan ARGS="v1.2.3 --partial"
	@$(BIN)/python -m hack.release --arguments-from ARGS
