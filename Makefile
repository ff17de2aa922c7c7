# Everything runs in .venv, with the versions of constraints/core.txt; each group of frameworks has an environment of its own.
PYTHON ?= python3
BIN := .venv/bin
# Runs pytest; what fails runs once more, alone.
PYTEST := .ci/second_chance.py
# What `make stress` tries takes hours on purpose, where the usual test has two minutes.
PATIENT := $(PYTEST) --timeout=14400
# Some tests wait for processes that they started, so there are more workers than cores.
PARALLEL := --dist loadfile --no-loadscope-reorder --numprocesses
# Tests start hundreds of processes: what is compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
# Python compiles what is imported; compiling every file of every package takes half of an environment's time. 0 is
# right: pip hands the value on to "compile".
export PIP_NO_COMPILE := 0
# Older ones, which Python brings, read the index three times as slowly.
export NEW_PIP := pip==26.3
# Makes an environment:  $(call fresh,PYTHON,DIRECTORY)
fresh = $(1) -m venv --clear $(2) && $(2)/bin/python -m pip install --quiet $(NEW_PIP)
# Ends each rule of an environment. Eight of them hold one PyTorch: large files that are equal become one on the disk,
# which saves a third of 17 GB. One hardlink at a time, or two would leave each other's temporary names.
installed = if command -v hardlink > /dev/null; then flock Makefile hardlink --quiet --ignore-time --minimum-size 1M \
  $$(ls -d .venv*/.installed 2> /dev/null | sed s/.installed/lib/) $(@D)/lib || true; fi; touch $@

.PHONY: environment demo flagship notebooks change test test-covered test-slow test-all test-peers test-frameworks test-trainers test-keras-on-jax test-keras-on-tensorflow test-mindspore test-composer test-deepspeed test-newest test-newest-if-there test-oldest stress bench docs lint types format check clean

demo: .venv/.installed
	$(BIN)/landscape demo --output demo_output

flagship: .venv/.installed
	sh constraints/install_mesa.sh
	$(BIN)/python docs/examples/flagship/run.py --output flagship_output

notebooks: .venv/.installed
	$(BIN)/python notebooks/execute.py

# When work on a change begins: it raises the number in tests/rotation and notes the commit.
change:
	$(PYTHON) .ci/rotation.py

environment: .venv/.installed
	sh constraints/install_chromium.sh
	sh constraints/install_mesa.sh

test: environment
	$(BIN)/python $(PYTEST) -m "not slow" $(PARALLEL) 3

test-covered: environment
	EXECUTE_SHAPES=1 $(BIN)/python $(PYTEST) --cov --cov-report=term -m "not slow" $(PARALLEL) 3

test-slow: environment
	$(BIN)/python $(PYTEST) -m slow $(CHOSEN) $(PARALLEL) 4

# Everything, with a table at the end.
test-all:
	$(PYTHON) .ci/gate.py --all

test-peers: .venv/.installed .venv-peers/.installed
	$(BIN)/python $(PYTEST) tests/landscape/exchange/test_landscaper.py tests/collectors/second_order/test_curvlinops.py \
	  tests/workers/torch/test_curvlinops_products.py

stress: .venv/.installed .venv-peers/.installed
	$(BIN)/python tests/benchmarks/run.py --quick --peers .venv-peers/bin/python --output /dev/null
	$(BIN)/python tests/benchmarks/curvature.py --quick --peers .venv-peers/bin/python
	EVERY_PICTURE=1 $(BIN)/python $(PATIENT) tests/landscape/figures/test_nothing_is_cut_off.py tests/landscape/figures/test_multiples.py
	EVERY_SEED=1 $(BIN)/python $(PATIENT) tests/collectors/second_order/test_digits.py
	EVERY_TOLERANCE=1 $(BIN)/python $(PATIENT) tests/landscape/sampling/test_calibration.py
	FLIPPED_EVERY=1 $(BIN)/python $(PATIENT) tests/landscape/record/test_digest.py
	FAULTY_EVERY=1 $(BIN)/python $(PATIENT) tests/stress/test_injected_faults.py
	COVERAGE_DIRECTIONS=2000 COVERAGE_NETWORKS=20 $(BIN)/python $(PATIENT) tests/stress/test_coverage.py
	FUZZ_CASES=10000 $(BIN)/python $(PATIENT) tests/stress/test_fuzz.py
	$(BIN)/python tests/stress/run.py --trials 20 --output docs/stress.md

test-frameworks: test-trainers test-keras-on-jax test-keras-on-tensorflow test-mindspore test-composer test-deepspeed

test-trainers: .venv-trainers/.installed
	FRAMEWORKS="lightning transformers keras jax trackers" .venv-trainers/bin/python $(PYTEST) tests/frameworks $(PARALLEL) 3

test-keras-on-jax: .venv-trainers/.installed
	KERAS_BACKEND=jax FRAMEWORKS="keras" .venv-trainers/bin/python $(PYTEST) tests/frameworks $(PARALLEL) 3

test-keras-on-tensorflow: .venv-tensorflow/.installed
	KERAS_BACKEND=tensorflow FRAMEWORKS="keras" .venv-tensorflow/bin/python $(PYTEST) tests/frameworks $(PARALLEL) 3

test-mindspore: .venv-mindspore/.installed
	FRAMEWORKS="mindspore" .venv-mindspore/bin/python $(PYTEST) tests/frameworks $(PARALLEL) 3

test-composer: .venv-composer/.installed
	FRAMEWORKS="composer" .venv-composer/bin/python $(PYTEST) tests/frameworks $(PARALLEL) 3

test-deepspeed: .venv-deepspeed/.installed
	FRAMEWORKS="deepspeed" .venv-deepspeed/bin/python $(PYTEST) tests/frameworks/test_deepspeed.py

# The newest version of everything, on the newest Python (make clean forgets what was the newest), and the oldest that
# pyproject.toml allows, on Python 3.11. PyTorch stays the one of constraints/core.txt.
NEWEST := sh constraints/newest_python.sh

test-newest: .venv-newest/.installed
	$(NEWEST) .venv-newest/bin/python $(PYTEST) -m "not slow" $(PARALLEL) 3

# What the gate runs: it makes no environment that takes so long to fetch.
test-newest-if-there:
	@if [ -e .venv-newest/.installed ]; then $(MAKE) test-newest; else \
	  echo "SKIPPED: no .venv-newest is there; make test-newest makes it (2.7 GB to fetch, 7 GB on the disk) and runs its tests. Last run: docs/systems.md"; fi

test-oldest: .venv-oldest/.installed
	.venv-oldest/bin/python $(PYTEST) -m "not slow" $(PARALLEL) 3

bench: .venv/.installed .venv-peers/.installed
	$(BIN)/python tests/benchmarks/run.py --peers .venv-peers/bin/python --output docs/benchmarks.md
	$(BIN)/python tests/benchmarks/curvature.py --peers .venv-peers/bin/python --output docs/benchmarks.md
	(echo; echo "## Our own parts"; echo; echo '```'; \
	for part in latency checkpoint_cost pca_speed scheduling big_models; do $(BIN)/python tests/benchmarks/$$part.py; done; echo '```') | grep -v '(raylet)' \
	| tee -a docs/benchmarks.md

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/time_rule.py
	$(BIN)/python .ci/system_rule.py

types: .venv/.installed
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint types test

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage demo_output flagship_output

.venv/.installed: pyproject.toml constraints/core.txt
	$(call fresh,$(PYTHON),.venv)
	$(BIN)/python -m pip install --quiet --constraint constraints/core.txt --editable ".[$(EXTRAS)]"
	@$(installed)

EXTRAS := torch,torchmetrics,xarray,tensorboard,crypto,interactive,vtk,meshes,s3,docs,dev

# Where there is no newest Python, nothing is made, so the rule comes again.
.venv-newest/.installed: pyproject.toml constraints/newest_python.sh
	$(NEWEST) sh -c '$(call fresh,python3.14,.venv-newest) && \
	  .venv-newest/bin/python -m pip install --quiet torch==2.13.0 --editable ".[$(EXTRAS)]" && touch $@'

.venv-oldest/.installed: pyproject.toml constraints/oldest.txt
	$(call fresh,python3.11,.venv-oldest)
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints/oldest.txt --editable ".[$(EXTRAS)]"
	@$(installed)

.venv-trainers/.installed: pyproject.toml constraints/trainers.txt
	$(call fresh,$(PYTHON),.venv-trainers)
	.venv-trainers/bin/python -m pip install --quiet --constraint constraints/trainers.txt --editable ".[lightning,transformers,keras,jax,tensorboard,interactive,wandb,mlflow,test]" optax peft
	@$(installed)

# Without PyTorch, as those have it who use TensorFlow. Keras 2, which wrote old checkpoints, asks for another build of it.
.venv-tensorflow/.installed: pyproject.toml constraints/tensorflow.txt
	$(call fresh,$(PYTHON),.venv-tensorflow)
	.venv-tensorflow/bin/python -m pip install --quiet --constraint constraints/tensorflow.txt --editable ".[keras,test]" tensorflow-cpu
	.venv-tensorflow/bin/python -m pip install --quiet --no-deps --constraint constraints/tensorflow.txt tf_keras
	@$(installed)

.venv-mindspore/.installed: pyproject.toml constraints/mindspore.txt
	$(call fresh,$(PYTHON),.venv-mindspore)
	.venv-mindspore/bin/python -m pip install --quiet --constraint constraints/mindspore.txt --editable ".[mindspore,torch,tensorboard,test]"
	@$(installed)

.venv-composer/.installed: constraints/composer.txt constraints/install_composer.sh
	rm -rf .venv-composer
	sh constraints/install_composer.sh .venv-composer
	@$(installed)

.venv-deepspeed/.installed: constraints/core.txt constraints/deepspeed.txt constraints/install_deepspeed.sh
	rm -rf .venv-deepspeed
	sh constraints/install_deepspeed.sh .venv-deepspeed
	@$(installed)

# curvlinops without its dependencies: torchvision, which it does not use here, does not load beside a torch for CPUs.
.venv-peers/.installed: constraints/peers.txt
	$(call fresh,$(PYTHON),.venv-peers)
	.venv-peers/bin/python -m pip install --quiet --constraint constraints/peers.txt \
	  torch loss-landscapes Landscaper loss-landscape-3d PyHessian hessian-eigenthings
	.venv-peers/bin/python -m pip install --quiet --no-deps --constraint constraints/peers.txt \
	  curvlinops-for-pytorch backpack-for-pytorch einconv einops jaxtyping linear_operator opt_einsum unfoldNd wadler_lindig
	@$(installed)
