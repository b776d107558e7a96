# `make train` and `make test` do everything on a fresh machine with Python 3.11 or newer; nothing else is needed.

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: train test venv format lint types pytest

train: venv
	$(BIN)/python examples/ppo_cartpole.py $(ARGS)

test: venv lint types pytest

venv: .venv/installed

.venv/installed: .ci/requirements.lock setup.py
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"rlpyt needs Python 3.11 or newer, this is {sys.version}"'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --requirement .ci/requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: venv
	$(BIN)/mypy

pytest: venv
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal
