# Every target sets up what it needs: `make test` and `make demo` work on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Tests and benchmarks start hundreds of processes; where this is set, each compiles everything anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test away soak interop lint bench clean
help:            ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 10

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Penstock needs Python 3.11 or newer; call make with PYTHON=python3.11" >&2; exit 1; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c 'from penstock.pipeline.java import find_java; find_java()' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[java]'
	@touch $@

setup: $(VENV)/.installed        ## a virtual environment with Penstock and its development tools

demo: $(VENV)/.installed         ## a guided tour, from an append to a repaired log (KEEP=1 keeps its data)
	@$(BIN)/penstock demo $(if $(KEEP),--keep)

test: $(VENV)/.installed         ## the tests, under seven minutes on two cores (SEED=1 their order, LOAD=2 a busy machine)
	@$(BIN)/python -m pytest -q -n 4 --dist loadgroup --no-loadscope-reorder -m 'not away and not soak and not interop' \
		$(if $(SEED),--seed $(SEED)) $(if $(LOAD),--load $(LOAD))

away: $(VENV)/.installed         ## as it is deployed: clusters, a Spark for each command, commands that are killed
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup --no-loadscope-reorder -m 'away and not soak' \
		$(if $(SEED),--seed $(SEED)) $(if $(LOAD),--load $(LOAD))

soak: $(VENV)/.installed         ## the long sweeps, and the tests on a busy machine
	@$(BIN)/python -m pytest -q -m soak --timeout 3600
	@$(MAKE) test LOAD=2

interop: $(VENV)/.installed      ## parts that others wrote: Iceberg's library, SDKs, the Collector (kept in .interop/)
	@$(BIN)/python -m pytest -q -m interop --timeout 1800 tests/interop $(if $(SEED),--seed $(SEED))

lint: $(VENV)/.installed         ## ruff, mypy --strict, the layering rule
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.installed        ## all benchmarks; rewrites bench/RESULTS.md
	@$(BIN)/python bench/run.py

clean:           ## removes the environment and caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist src/*.egg-info
