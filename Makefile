# Everything runs in .venv, with the versions of constraints/core.txt; each group of frameworks has an environment of its own.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := -m pytest --no-cov
# Long trials; each may run beside any other, so they are shared out one by one.
FAULTS := tests/stress/test_faults.py tests/stress/test_injected_faults.py
# Some tests wait for processes that they started, so there are more workers than cores.
PARALLEL := --dist loadfile --no-loadscope-reorder --numprocesses
# Tests start hundreds of processes: what is compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-peers test-frameworks test-trainers test-mindspore test-composer test-deepspeed stress bench docs lint types format check clean

demo: .venv/.installed
	$(BIN)/landscape demo --output demo_output

test: .venv/.installed
	sh constraints/install_chromium.sh
	$(BIN)/python $(PYTEST) -m "not slow" $(PARALLEL) 3

test-all: .venv/.installed
	sh constraints/install_chromium.sh
	$(BIN)/python -m pytest --cov --cov-report= $(PARALLEL) 4 $(FAULTS:%=--ignore=%)
	$(BIN)/python -m pytest --cov --cov-append --cov-report=term --numprocesses 3 $(FAULTS)

test-peers: .venv/.installed .venv-peers/.installed
	$(BIN)/python $(PYTEST) tests/landscape/exchange

stress: .venv/.installed
	EVERY_PICTURE=1 $(BIN)/python $(PYTEST) tests/landscape/figures/test_nothing_is_cut_off.py
	FAULTY_EVERY=1 $(BIN)/python $(PYTEST) tests/stress/test_injected_faults.py
	FUZZ_CASES=10000 $(BIN)/python $(PYTEST) tests/stress/test_fuzz.py
	$(BIN)/python tests/stress/run.py --trials 20 --output docs/stress.md

test-frameworks: test-trainers test-mindspore test-composer test-deepspeed

test-trainers: .venv-trainers/.installed
	FRAMEWORKS="lightning transformers keras jax" .venv-trainers/bin/python $(PYTEST) tests/frameworks
	KERAS_BACKEND=jax FRAMEWORKS="keras" .venv-trainers/bin/python $(PYTEST) tests/frameworks

test-mindspore: .venv-mindspore/.installed
	FRAMEWORKS="mindspore" .venv-mindspore/bin/python $(PYTEST) tests/frameworks

test-composer: .venv-composer/.installed
	FRAMEWORKS="composer" .venv-composer/bin/python $(PYTEST) tests/frameworks

test-deepspeed: .venv-deepspeed/.installed
	FRAMEWORKS="deepspeed" .venv-deepspeed/bin/python $(PYTEST) tests/frameworks/test_deepspeed.py

bench: .venv/.installed .venv-peers/.installed
	$(BIN)/python tests/benchmarks/run.py --peers .venv-peers/bin/python --output docs/benchmarks.md
	(echo; echo "## Our own parts"; echo; echo '```'; \
	for part in latency checkpoint_cost pca_speed scheduling big_models; do $(BIN)/python tests/benchmarks/$$part.py; done; echo '```') | grep -v '(raylet)' \
	| tee -a docs/benchmarks.md

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.installed
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint types test

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage demo_output

.venv/.installed: pyproject.toml constraints/core.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --constraint constraints/core.txt --editable ".[torch,torchmetrics,xarray,tensorboard,crypto,interactive,vtk,s3,docs,dev]"
	touch $@

.venv-trainers/.installed: pyproject.toml constraints/trainers.txt
	$(PYTHON) -m venv --clear .venv-trainers
	.venv-trainers/bin/python -m pip install --quiet --constraint constraints/trainers.txt --editable ".[lightning,transformers,keras,jax,tensorboard,test]" optax peft
	touch $@

.venv-mindspore/.installed: pyproject.toml constraints/mindspore.txt
	$(PYTHON) -m venv --clear .venv-mindspore
	.venv-mindspore/bin/python -m pip install --quiet --constraint constraints/mindspore.txt --editable ".[mindspore,torch,test]"
	touch $@

.venv-composer/.installed: constraints/composer.txt constraints/install_composer.sh
	rm -rf .venv-composer
	sh constraints/install_composer.sh .venv-composer
	touch $@

.venv-deepspeed/.installed: constraints/core.txt constraints/deepspeed.txt constraints/install_deepspeed.sh
	rm -rf .venv-deepspeed
	sh constraints/install_deepspeed.sh .venv-deepspeed
	touch $@

.venv-peers/.installed: constraints/peers.txt
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --constraint constraints/peers.txt torch loss-landscapes Landscaper loss-landscape-3d
	touch $@
