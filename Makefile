# make demo   attack 64 digits and print a table     make test   every check
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export ALMAKIT_DATA ?= $(abspath ../shared/data)

# make check   lint, types and the fast tests, before every commit     CONTRIBUTING.md has the measured times
.PHONY: setup check demo test nightly lint clean docs site-test dist newcomer

setup: $(VENV)/.setup-done

$(VENV)/.setup-done: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The demo needs torch, numpy, safetensors and the extra of the command line.
$(VENV)/.demo-done: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cli]'
	touch $@

demo: $(VENV)/.demo-done
	$(BIN)/almakit demo

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check --quiet src tests benchmarks
	$(BIN)/mypy
	$(BIN)/pylint src/almakit
	$(BIN)/python tests/docs/words.py

# Lint, types and the tests of tests/fast.txt.
check: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not network and not slow" @tests/fast.txt

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not network and not slow"

# Everything: also the tests marked slow and those that download, and five times as many fuzzed examples.
nightly: lint
	ALMAKIT_FUZZ=5 $(BIN)/pytest -n 2 --dist worksteal

# README, quick start and five guides from an empty folder, in a fresh environment with only the wheel.
newcomer: setup
	$(BIN)/pytest -n 0 -m slow tests/newcomer

# The site, into site/; a warning is an error. KaTeX, which renders formulas, comes from npm and is part of the site.
docs: setup build/npm/node_modules/katex
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The built site in a browser, every page at two widths.
site-test: docs
	$(BIN)/pytest -n 0 -m slow tests/docs/test_site.py

build/npm/node_modules/katex:
	npm install --silent --no-save --no-package-lock --prefix build/npm katex@0.16.22

# Wheel and sdist, into dist/.
dist: setup
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist site src/*.egg-info
