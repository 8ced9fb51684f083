# The parts of `make lint`, which `make -j2` runs at the same time.
.PHONY: lint-code lint-types lint-project lint-patterns

lint-code: $(VENV)/.types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m hack.generate --check
	$(BIN)/python -m hack.prose
	$(BIN)/python -m hack.conversions

lint-types: $(VENV)/.types
	$(BIN)/mypy

lint-project: $(VENV)/.types
	@rm -rf build/types && $(BIN)/cfo new website-operator build/types >/dev/null
	cd build/types && $(abspath $(BIN))/python -m mypy --cache-dir $(CURDIR)/.mypy_cache/scaffold
	$(BIN)/basedpyright --pythonpath $(BIN)/python

lint-patterns: $(VENV)/.types
	$(BIN)/python -m hack.patterns
