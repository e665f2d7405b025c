# make demo   attack 64 digits and print a table     make test   every check, under 10 minutes on 2 cores
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export ALMAKIT_DATA ?= $(abspath ../shared/data)

.PHONY: setup demo test lint clean docs dist

setup: $(VENV)/.setup-done

$(VENV)/.setup-done: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/almakit demo

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not network and not slow"

# The site, into site/; a warning is an error.
docs: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Wheel and sdist, into dist/.
dist: setup
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist site src/*.egg-info
