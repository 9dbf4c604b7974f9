# make demo: the tool on a few shipped inputs.   make test: everything a change must pass.
# Needs Python 3.11 or newer and nothing else; all packages go into .venv.

VENV := .venv
BIN  := $(VENV)/bin
CORE := $(VENV)/.core-installed
DEV  := $(VENV)/.dev-installed

# The first Python that is new enough and can make environments; override with `make PYTHON=...`.
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
SUITABLE   := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON     ?= $(shell for p in $(CANDIDATES); do $$p -c '$(SUITABLE)' >/dev/null 2>&1 && echo $$p && break; done)

# Networks fail now and then: a failed installation is tried once more.
PIP     := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet
install  = $(PIP) $(1) || { echo "installation failed, trying once more"; sleep 5; $(PIP) $(1); }

# Two test processes share the cores; BLAS threads on small matrices only get in their way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help demo test coverage fuzz lint format docs bench soundness install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     run the tool on a few shipped inputs"
	@echo "make test     lint, types, import direction, tests"
	@echo "make coverage the same, and which lines of Python no test ran"
	@echo "make fuzz     the property tests with new random examples, 20 times as many: make fuzz ARGS='tests/io -k conv'"
	@echo "make lint     the same without the tests"
	@echo "make format   let ruff rewrite what it can"
	@echo "make docs     the documentation, in build/site"
	@echo "make bench    the paper's experiments: make bench ARGS='...'"
	@echo "make soundness  the audit: 50,000 random cases held against rational truth (docs/soundness.md)"
	@echo "make install  the development environment in $(VENV)"
	@echo "make clean    remove $(VENV), caches and builds"

demo: $(CORE)
	$(BIN)/layercert demo

test: lint
	$(BIN)/python -m pytest -n 2 --durations 10 $(ARGS)

coverage:
	$(MAKE) test ARGS="--cov --cov-report term $(ARGS)"

# What fails is kept in tests/found and tried again by make test.
fuzz: $(DEV)
	LAYERCERT_FUZZ=1 $(BIN)/python -m pytest -n 2 -m hypothesis $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(DEV)
	$(BIN)/python -m mkdocs build --strict

bench: $(DEV)
	$(BIN)/layercert reproduce $(ARGS)

soundness: $(DEV)
	$(BIN)/python scripts/soundness $(ARGS)

install: $(DEV)

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
	  echo "LayerCert needs Python 3.11 or newer with the venv module."; \
	  echo "Found: $$(python3 --version 2>&1 || echo 'no python3')."; \
	  echo "On Debian or Ubuntu: apt install python3-venv; elsewhere: make PYTHON=/path/to/python3.11"; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(BIN)/python
	@echo "installing LayerCert into $(VENV) (a minute or two the first time)"
	@$(call install,--editable '.[plot]')
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing LayerCert and its development tools into $(VENV) (a few minutes the first time)"
	@$(call install,--editable '.[dev]')
	@touch $(CORE) $@
