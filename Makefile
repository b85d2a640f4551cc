.DEFAULT_GOAL := help
PYTHON ?= python
SPREAD ?= -n 2 --dist loadfile

.PHONY: help check docs fix screenshots test test-all wheel

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

check:  ## formatting, lint, types and the tests, as in CI
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest $(SPREAD)

docs:  ## the site, into build/docs; a broken link or reference is an error
	$(PYTHON) -m sphinx --fail-on-warning --keep-going --quiet docs build/docs

fix:  ## format and mend what ruff can mend
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

screenshots:  ## every tab of the studio in use, into build/screenshots; needs Chromium
	$(PYTHON) -m t2x app --screenshots build/screenshots

test:  ## the tests that run on any laptop
	$(PYTHON) -m pytest $(SPREAD)

test-all:  ## slow tests too
	$(PYTHON) -m pytest $(SPREAD) -m "not gpu and not hub"

wheel:  ## build sdist and wheel into dist/
	$(PYTHON) -m build
