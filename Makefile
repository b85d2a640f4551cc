.DEFAULT_GOAL := help
PYTHON ?= python

.PHONY: help check fix test test-all wheel

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-10s %s\n", $$1, $$2}'

check:  ## formatting, lint, types and the tests, as in CI
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest

fix:  ## format and mend what ruff can mend
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

test:  ## the tests that run on any laptop
	$(PYTHON) -m pytest

test-all:  ## slow tests too
	$(PYTHON) -m pytest -m "not gpu and not hub"

wheel:  ## build sdist and wheel into dist/
	$(PYTHON) -m build
