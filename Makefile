# `make demo` and `make test` do all the set-up by themselves, in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BENCH_VENV ?= .venv-bench

.PHONY: bench clean coverage demo dist docs evidence help lint test test-all test-core test-long test-lowest

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## install, then compare heads that learn task after task
	$(BIN)/taer run
	@echo "Run it on your own features: $(BIN)/taer run FILE.npz  (X_train, y_train, X_test, y_test; docs/tutorial.md has the rest)"
	@echo "Teach one yourself, by drawing: $(BIN)/pip install -e '.[images,serve]' && $(BIN)/taer serve demo/ --demo"

# Not --quiet: it hides warnings from --strict, and broken links pass.
docs: $(VENV)/.installed-dev  ## fill the tables that come from the code, then build the documentation into site/
	$(BIN)/python tools/fill_docs.py cards
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(VENV)/.installed-dev  ## style, types and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two workers share the cores. With more than one BLAS thread each, they would wait for each other.
test test-core test-lowest coverage: export OPENBLAS_NUM_THREADS = 1

test: lint  ## style, types, and the tests of the core, the command line and the service: five minutes on two quiet cores
	$(BIN)/pytest -n 2 -m 'not slow and not zoo'

# MLflow's pins would change the versions that everything else is tested with.
$(VENV)-mlflow/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-mlflow
	$(VENV)-mlflow/bin/pip install --quiet --disable-pip-version-check mlflow -e .
	@touch $@

test-all: lint $(VENV)-mlflow/.installed  ## what `make test` leaves out: slow tests, a third of the zoo's, the kernels of other CPUs
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'zoo and not slow'
	MLFLOW_PYTHON=$(abspath $(VENV)-mlflow/bin/python) $(BIN)/pytest -m slow -rs
	tools/kernels.sh $(BIN)

test-long: export TAER_TESTS = long
test-long: lint $(VENV)-mlflow/.installed  ## every test, those of the zoo whole, and all of them again with the kernels of other CPUs
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'not slow'
	MLFLOW_PYTHON=$(abspath $(VENV)-mlflow/bin/python) $(BIN)/pytest -m slow -rs
	tools/kernels.sh $(BIN)

# The core and its tests alone, without the extras. Tests that need more are skipped, with a reason.
CORE_TESTS = -n 2 -m 'not slow and not system' --doctest-ignore-import-errors -rs -p no:cacheprovider

test-core:  ## the core's tests in an environment without torch, ray and a browser
	$(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/bin/pip install --quiet --disable-pip-version-check -e '.[test]'
	$(VENV)-core/bin/pytest $(CORE_TESTS)

test-lowest:  ## the same with the lowest versions of every dependency
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/pip install --quiet --disable-pip-version-check packaging
	$(VENV)-lowest/bin/python tools/lowest.py > $(VENV)-lowest/constraints.txt
	$(VENV)-lowest/bin/pip install --quiet --disable-pip-version-check -c $(VENV)-lowest/constraints.txt -e '.[test]'
	$(VENV)-lowest/bin/pytest $(CORE_TESTS)

coverage: $(VENV)/.installed-dev  ## the lines of src/ that no fast test runs
	$(BIN)/pytest -n 2 -m 'not slow' --cov --cov-report term-missing:skip-covered --cov-fail-under 92

dist: $(VENV)/.installed-dev  ## build the wheel and the source distribution into dist/ and check them
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# Avalanche needs torchvision, which must fit the torch that is there, so both are chosen together.
$(BENCH_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 avalanche-lib==0.6.0 -e '.[report]'
	@touch $@

bench: $(BENCH_VENV)/.installed  ## measure speed against others; writes docs/evidence/benchmarks.md (FEATURES=file: also on real features)
	$(BENCH_VENV)/bin/python -m benchmarks.pages.benchmarks $(if $(FEATURES),--features $(FEATURES))

ifeq ($(PAGE),benchmarks)
evidence: bench
else
evidence: $(VENV)/.installed-dev  ## measure a page of docs/evidence/ again and fill its tables (PAGE=fewshot FEATURES=…; benchmarks/README.md)
	@test -f benchmarks/pages/$(PAGE).py || { echo 'PAGE must be one of: $(basename $(notdir $(wildcard benchmarks/pages/*.py)))'; exit 2; }
	mkdir -p results/evidence
	$(BIN)/python -m benchmarks.pages.$(PAGE) $(if $(FEATURES),--features $(FEATURES)) $(ARGS) > results/evidence/$(PAGE).md
	$(BIN)/python tools/fill_docs.py --some docs/evidence/$(PAGE).md results/evidence/$(PAGE).md
endif

clean:  ## remove the environments and the results
	rm -rf $(VENV) $(VENV)-core $(VENV)-lowest $(VENV)-mlflow $(BENCH_VENV) dist site results .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
