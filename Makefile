# `make demo` and `make test` do all the set-up by themselves, in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BENCH_VENV ?= .venv-bench

.PHONY: bench demo docs test test-all lint clean help

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## install, then watch heads learn task after task
	$(BIN)/taer run

docs: $(VENV)/.installed  ## write what the heads say of themselves into the documents
	$(BIN)/python tools/fill_docs.py cards

lint: $(VENV)/.installed-dev  ## style, types and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## install what the tests need, check style and types, run the tests
	$(BIN)/pytest -n 2 -m 'not slow'

test-all: lint  ## the slow set: what takes long or needs more than pip can install, and the kernels of other CPUs
	$(BIN)/pytest -m slow -rs || test $$? -eq 5
	tools/kernels.sh $(BIN)

# Avalanche needs torchvision, which must fit the torch that is there, so both are chosen together.
$(BENCH_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 avalanche-lib==0.6.0 -e '.[report]'
	@touch $@

bench: $(BENCH_VENV)/.installed  ## measure speed against others; writes docs/benchmarks.md (FEATURES=file: also on real features)
	$(BENCH_VENV)/bin/python benchmarks/bench.py $(if $(FEATURES),--features $(FEATURES))

clean:  ## remove the environments and the results
	rm -rf $(VENV) $(BENCH_VENV) results .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
