# A fresh machine needs python3 (3.11 or newer) and make; the rest goes into .venv.
PYTHON ?= python3
ARGS   ?=

VENV := .venv
BIN  := $(VENV)/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two targets at once would run two pips in one environment.
.NOTPARALLEL:
.PHONY: help demo test slow lint docs bench calibrate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.with-report ## two models on simulated data: a table, and reports to open
	$(BIN)/wideangle demo $(ARGS)

test: $(VENV)/.with-dev ## the fast tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" $(ARGS)

slow: $(VENV)/.with-dev ## the long statistical tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow $(ARGS)

lint: $(VENV)/.with-dev ## style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(VENV)/.with-docs ## the documentation, as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.with-bench ## speed and sampling efficiency against other libraries
	$(BIN)/wideangle bench $(ARGS)
	$(BIN)/python -m wideangle_lab.bench.page results/bench/full.json docs/performance.md README.md
	$(BIN)/python -m wideangle_lab.bench.defaults.page results/bench/defaults.json docs/defaults.md README.md

calibrate: $(VENV)/.with-dev ## are the samplers right? ranks, restarts and known faults, to docs/trust.md
	$(BIN)/python -m wideangle_lab.calibration run $(ARGS)
	$(BIN)/python tests/known_faults.py results/calibration/faults.json
	$(BIN)/python -m wideangle_lab.calibration page

clean: ## remove the environment and the caches
	rm -rf $(VENV) .hypothesis .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra: installed once, and again when what is asked for changes.
$(VENV)/.with-%: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing wideangle[$*] into $(VENV) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "wideangle needs Python 3.11 or newer, which '$(PYTHON)' is not; name another: make PYTHON=python3.12 ..." >&2; \
	  exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@
