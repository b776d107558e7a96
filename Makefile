# `make train` and `make test` do everything on a fresh machine with Python 3.11 or newer; nothing else is needed.
# `make train` installs the library alone, and the other commands what tests need too, all in .venv.
#
#   make check       lint, types and the quick tier of the tests: 90 seconds on two cores
#   make test        lint, types and the whole suite
#   make fix         format, and mend what ruff can mend
#   make pages       write the generated pages and pictures of docs/
#   make docs        build the site of all pages and docstrings, and run its notebooks, without a network: build/site/index.html
#   make bench       this library and its peers on the same work: docs/notes/performance.md
#   make bench-short the benchmarks of imports, the collector and the replay
#   make speed       fail where a hot path became 1.5 times slower
#   make nightly-environments  packages of environments of others, in an environment of their own
#   make slurm       grids and batch scripts on a SLURM of this machine alone, which it starts and ends: 20 minutes
#   make nightly-warp  MuJoCo Warp's cart-pole on the CPU; the first run compiles for minutes
#   make nightly-ray clusters of Ray whose head dies
#   make gravest     make the forty gravest mistakes, one at a time: does a test fail?
#   make nightly-tests  cases of the suite that are marked `nightly`: whole products of options, soaks, long runs
#   make nightly     what `make test` leaves out, for its packages or its time: the six above, and make docs
#   make mutants ROOM=functional  make all changes that mutmut knows in a room, one at a time
#   make figures     learning curves over seeds, as far as the time given: docs/notes/figures.md
#   make durations   run the whole suite, and write down which tests are slow (tests/durations.json)

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# A version of torch other than the pinned one, such as 2.10.0; read when .venv is made.
TORCH ?=
# Tests start hundreds of processes, each of which would compile the library and torch's imports anew.
export PYTHONDONTWRITEBYTECODE :=
# Three for two cores: tests that start processes wait most of their time.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist worksteal
# Cases marked `nightly` run where an expression asks for them, and nowhere else: tests/tiers.py.
# Alone: beside two busy processes, a start of Ray's cluster or of its actors can take longer than a test may.
RAY_TESTS := $(BIN)/python -m pytest --numprocesses 0 tests/launching tests/samplers

.PHONY: mutants gravest train test check fix pages docs bench bench-device bench-short speed nightly nightly-tests nightly-environments nightly-warp nightly-ray slurm durations figures venv format lint types pytest quick

train: .venv/library
	$(BIN)/python examples/ppo_cartpole.py $(ARGS)

test: venv lint types pytest

check: venv
	$(MAKE) --jobs 2 --output-sync=target lint types quick

venv: .venv/installed

# The versions of the lock, of the packages that the library needs. pip is not quiet: it says what it waits for.
.venv/library: .ci/requirements.lock setup.py
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"rlpyt needs Python 3.11 or newer, this is {sys.version}"'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(if $(TORCH),sed "s/^torch==.*/torch==$(TORCH)/; /^setuptools==/d",cat) .ci/requirements.lock > .venv/requirements.txt
	@echo "Installing rlpyt and some 25 packages into .venv; PyTorch is the large one."
	# Modules are compiled when they are first imported: most of PyTorch's never are, and it takes half of the minute.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --no-compile --constraint .venv/requirements.txt --editable '.[classic_control]'
	touch $@

.venv/installed: .venv/library
	@echo "Installing what the tests need: 120 packages more, 2 GB."
	$(BIN)/python -m pip install --requirement .venv/requirements.txt
	touch $@

fix: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

format: fix

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: venv
	$(BIN)/mypy

pytest: venv
	$(PYTEST) -m "not ray"
	$(RAY_TESTS) -m ray

# Two: types are checked beside them.
quick: venv
	$(PYTEST) --numprocesses 2 -m "not slow and not ray"

figures: venv
	$(BIN)/python -m experiments.figures $(ARGS)

durations: venv
	$(PYTEST) --record-durations

pages: venv
	$(BIN)/python -m tests.names_page
	$(BIN)/python -m tests.rooms_drawing
	$(BIN)/python -m tests.pictures
	$(BIN)/python -m experiments.gallery

# Sphinx reads the docstrings of what it imports: its packages stand beside those of .venv, and not among them.
.docs/installed: .ci/docs.lock
	$(BIN)/python -m pip install --quiet --no-deps --target .docs --requirement $<
	touch $@

docs: venv .docs/installed
	rm -rf build/site build/doctrees docs/project docs/reference/api
	PYTHONPATH="$(CURDIR)/.docs" $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going \
		--conf-dir docs/site --doctree-dir build/doctrees docs build/site
	$(BIN)/python -m pytest --numprocesses 0 -rs tests/nightly/test_site.py

# Each peer in an environment of its own, from pinned versions.
PEERS := stable_baselines3 sbx tianshou torchrl sample_factory rllib envpool rlox

.bench/%/installed: benchmarks/peers/%.lock
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --quiet --requirement $<
	touch $@

bench: venv $(PEERS:%=.bench/%/installed)
	$(BIN)/python benchmarks/performance.py $(ARGS)

# Without their own requirements: some pin another gymnasium or numpy, and work with those of the first lock.
.nightly/environments/installed: .ci/requirements.lock .ci/environments.lock
	$(PYTHON) -m venv .nightly/environments
	.nightly/environments/bin/python -m pip install --quiet --requirement .ci/requirements.lock
	# The parts of MuJoCo 4 share a folder with MuJoCo 3: what is left of them there, it would load.
	.nightly/environments/bin/python -m pip uninstall --quiet --yes mujoco mujoco-core mujoco-studio
	.nightly/environments/bin/python -m pip install --quiet --no-deps --requirement .ci/environments.lock
	# opensimplex installs its tests as the package `tests`, which would hide ours.
	rm -rf .nightly/environments/lib/python3.*/site-packages/tests
	.nightly/environments/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

nightly-environments: .nightly/environments/installed
	.nightly/environments/bin/python -m pytest --timeout 600 -rs tests/nightly/test_real_environments.py

# Debian's packages of SLURM must be installed; nothing of them need run.
slurm: venv
	$(BIN)/python -m tests.slurm $(ARGS)

# MuJoCo Warp stands beside the packages of .venv, and Warp's compiled kernels are kept.
.nightly/mujoco_warp/installed: .ci/mujoco_warp.lock
	$(BIN)/python -m pip install --quiet --no-deps --target .nightly/mujoco_warp --requirement $<
	touch $@

nightly-warp: venv .nightly/mujoco_warp/installed
	PYTHONPATH="$(CURDIR)/.nightly/mujoco_warp" WARP_CACHE_PATH="$(CURDIR)/.nightly/warp_cache" \
		$(BIN)/python -m pytest --numprocesses 0 --timeout 1800 -rs tests/nightly/test_mujoco_warp.py

nightly-ray: venv
	$(BIN)/python -m pytest --timeout 600 -rs tests/nightly/test_lost_head.py

# With more time than in the suite, as torch compiles whole updates in some.
nightly-tests: venv
	$(PYTEST) --timeout 600 -m "nightly and not ray"
	$(RAY_TESTS) --timeout 600 -m "nightly and ray"

nightly: nightly-tests nightly-environments nightly-warp nightly-ray slurm gravest docs

# mutmut runs the tests in its own process: its packages stand beside those of .venv, and not among them.
.nightly/mutmut/installed: .ci/mutants.lock
	$(BIN)/python -m pip install --quiet --no-deps --target .nightly/mutmut --requirement $<
	touch $@

mutants: venv .nightly/mutmut/installed
	PYTHONPATH="$(CURDIR)/.nightly/mutmut" $(BIN)/python -m tests.mutants $(ROOM) $(ARGS)

gravest: venv
	$(BIN)/python -m tests.nightly.gravest $(ARGS)

# Simulators on a device: each library in its own environment, in turn.
.bench/%/installed: benchmarks/peers/device/%.lock
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --quiet --requirement $<
	touch $@

bench-device: venv .bench/skrl/installed .bench/rsl_rl/installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/device_sampling.py
	for turn in 1 2 3; do \
		$(BIN)/python benchmarks/device_ppo.py rlpyt; \
		.bench/skrl/bin/python benchmarks/device_ppo.py skrl; \
		.bench/rsl_rl/bin/python benchmarks/device_ppo.py rsl_rl; \
	done

bench-short: venv
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/collector.py
	$(BIN)/python benchmarks/replay.py

speed: venv
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/hot_paths.py
