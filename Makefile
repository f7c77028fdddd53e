# `make demo` and `make test` do all the set-up by themselves, in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BENCH_VENV ?= .venv-bench

.PHONY: bench clean counts coverage demo dist docs evidence help lint mutation test test-all test-core test-long test-lowest

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
	$(BIN)/python tools/fill_docs.py figures
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(VENV)/.installed-dev  ## style, types and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two workers share the cores. With more than one BLAS thread each, they would wait for each other.
test test-core test-lowest coverage: export OPENBLAS_NUM_THREADS = 1

test: lint  ## style, types, and the tests of the core, the command line and the service: four to five minutes on two quiet cores
	$(BIN)/pytest -n 2 -m 'not slow and not zoo'

# MLflow's pins would change the versions that everything else is tested with.
$(VENV)-mlflow/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-mlflow
	$(VENV)-mlflow/bin/pip install --quiet --disable-pip-version-check mlflow -e .
	@touch $@

# The other side of the protocol test, as published.
$(VENV)-triton/.installed:
	$(PYTHON) -m venv $(VENV)-triton
	$(VENV)-triton/bin/pip install --quiet --disable-pip-version-check 'tritonclient[http]'
	@touch $@

# The labeling tool, as published; it brings Django.
$(VENV)-label-studio/.installed:
	$(PYTHON) -m venv $(VENV)-label-studio
	$(VENV)-label-studio/bin/pip install --quiet --disable-pip-version-check label-studio
	@touch $@

# Loggers bring many packages of their own.
$(VENV)-logs/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-logs
	$(VENV)-logs/bin/pip install --quiet --disable-pip-version-check -e '.[tensorboard,wandb]'
	@touch $@

# The SDK and the exporter, as published; they run inside the service.
$(VENV)-otel/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-otel
	$(VENV)-otel/bin/pip install --quiet --disable-pip-version-check -e '.[otel,serve]'
	@touch $@

# What runs ONNX in a browser, as published.
$(VENV)-web/.installed:
	mkdir -p $(VENV)-web
	cd $(VENV)-web && npm pack --silent onnxruntime-web@1.30.0
	@touch $@

# Fuzzing instruments what it imports; nothing else should be run like that.
$(VENV)-fuzz/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-fuzz
	$(VENV)-fuzz/bin/pip install --quiet --disable-pip-version-check 'atheris>=3' pyarrow -e '.[serve]'
	@touch $@

NPM := $(shell command -v npm)
OTHERS = MLFLOW_PYTHON=$(abspath $(VENV)-mlflow/bin/python) TRITON_PYTHON=$(abspath $(VENV)-triton/bin/python) \
	LABEL_STUDIO_PYTHON=$(abspath $(VENV)-label-studio/bin/python) LOGS_PYTHON=$(abspath $(VENV)-logs/bin/python) \
	FUZZ_PYTHON=$(abspath $(VENV)-fuzz/bin/python) OTEL_PYTHON=$(abspath $(VENV)-otel/bin/python) \
	$(if $(NPM),ORT_WEB=$(abspath $(VENV)-web))
OTHERS_INSTALLED = $(patsubst %,$(VENV)-%/.installed,mlflow triton label-studio logs fuzz otel $(if $(NPM),web))

# A worker takes over what the other has left. What would be disturbed runs afterwards, alone. `make counts` reads the reports.
SLOW = $(OTHERS) $(BIN)/pytest -rs
SLOW_TESTS = OPENBLAS_NUM_THREADS=1 $(SLOW) -m 'slow and not alone' -n 2 --dist worksteal --junitxml results/tests/slow.xml \
	&& $(SLOW) -m 'slow and alone' --junitxml results/tests/alone.xml

test-all: lint $(OTHERS_INSTALLED)  ## what `make test` leaves out: slow tests, a third of the zoo's, the kernels of other CPUs
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'zoo and not slow'
	$(SLOW_TESTS)
	tools/kernels.sh $(BIN)

test-long: export TAER_TESTS = long
test-long: lint $(OTHERS_INSTALLED)  ## every test, in random order, those of the zoo whole, and all of them again with the kernels of other CPUs
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'not slow' -p randomly
	$(SLOW_TESTS)
	tools/kernels.sh $(BIN)
	tools/container.sh $(BIN)

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

$(VENV)-mutation/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-mutation
	$(VENV)-mutation/bin/pip install --quiet --disable-pip-version-check 'mutmut>=3.8' -e '.[serve,test]'
	@touch $@

counts: $(VENV)/.installed-dev  ## fill the counts of "How it is tested" from the last make test-all or test-long, and from make mutation
	$(BIN)/python tools/counts.py $(wildcard results/tests/*.xml) > results/counts.md
	$(BIN)/python tools/fill_docs.py --some docs/evidence/testing.md results/counts.md

# MUTANTS='taer.heads.exact*' for some of them. What was tested is not tested again; `mutmut show NAME` shows one.
mutation: $(VENV)-mutation/.installed  ## change the code that decides in small ways, and list the changes that no test notices
	OPENBLAS_NUM_THREADS=1 $(VENV)-mutation/bin/mutmut run $(MUTANTS)
	$(VENV)-mutation/bin/mutmut results

dist: $(VENV)/.installed-dev  ## build the wheel and the source distribution into dist/, twice with the same bytes, and check them
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist/again
	@for file in dist/*.whl dist/*.tar.gz; do cmp $$file dist/again/$$(basename $$file) || exit 1; done
	@rm -r dist/again
	$(BIN)/twine check --strict dist/*
	cd dist && sha256sum *

# Of an environment of its own, because that for development has more in it. EXTRAS=serve,images adds theirs.
sbom: $(VENV)/.installed-dev  ## write dist/taer.cdx.json: every package that an installation brings, with licenses (CycloneDX)
	$(PYTHON) -m venv --clear $(VENV)-sbom
	$(VENV)-sbom/bin/pip install --quiet --disable-pip-version-check '.$(if $(EXTRAS),[$(EXTRAS)])'
	$(BIN)/python tools/sbom.py $(VENV)-sbom/bin/python dist/taer.cdx.json

# Avalanche needs torchvision, which must fit the torch that is there, so both are chosen together.
$(BENCH_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 avalanche-lib==0.6.0 -e '.[report]'
	@touch $@

bench: $(BENCH_VENV)/.installed  ## measure speed against others; writes docs/evidence/benchmarks.md (FEATURES=file: also on real features)
	$(BENCH_VENV)/bin/python -m benchmarks.pages.benchmarks $(if $(FEATURES),--features $(FEATURES))

bench-check: $(VENV)/.installed-dev  ## is something slower than in the last release? Ratios against benchmarks/speed/last_release.json
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed.check

ifeq ($(PAGE),benchmarks)
evidence: bench
else
evidence: $(VENV)/.installed-dev  ## measure a page of docs/evidence/ again and fill its tables (PAGE=fewshot FEATURES=…; docs/evidence/reproduce.md)
	@test -f benchmarks/pages/$(PAGE).py || { echo 'PAGE must be one of: $(basename $(notdir $(wildcard benchmarks/pages/*.py)))'; exit 2; }
	mkdir -p results/evidence
	$(BIN)/python -m benchmarks.pages.$(PAGE) $(if $(FEATURES),--features $(FEATURES)) $(ARGS) > results/evidence/$(PAGE).md
	$(BIN)/python tools/fill_docs.py --some docs/evidence/$(PAGE).md results/evidence/$(PAGE).md
endif

clean:  ## remove the environments and the results
	rm -rf $(VENV) $(VENV)-core $(VENV)-lowest $(VENV)-mlflow $(VENV)-triton $(VENV)-label-studio $(VENV)-logs $(VENV)-fuzz $(VENV)-otel $(VENV)-web $(VENV)-mutation $(VENV)-sbom $(BENCH_VENV) mutants dist site results .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
