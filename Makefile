# probssl: `make demo` shows it, `make test` proves it; both set up .venv first and can be run again at any time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint bench soak clean help

help:
	@echo "make setup   make $(VENV) and install probssl into it"
	@echo "make demo    train four losses on two circles and show the page (one to two minutes)"
	@echo "make test    run the tests"
	@echo "make lint    ruff and mypy"
	@echo "make bench   measure what docs/performance.md claims"
	@echo "make soak    kill, damage and starve for MINUTES=30, by SEED=0"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/probssl reproduce siamese/circles --out demo
	@echo
	@echo "open the page above, then try your own data:  $(BIN)/probssl fit table.csv --label COLUMN"

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/step_cost.py
	$(BIN)/python benchmarks/kernels.py --out benchmarks/results/kernels.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sliced_fisher.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/symbolic.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/grids.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/large_batches.py --out benchmarks/results/large_batches.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/augmentations.py --out benchmarks/results/augmentations.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/resnet.py --out benchmarks/results/resnet.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/image_step.py --contiguous --fit --out benchmarks/results/image_step.json
	$(BIN)/python benchmarks/processes.py --out benchmarks/results/processes.json

MINUTES ?= 30
SEED ?= 0

soak: setup
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED)

clean:
	rm -rf $(VENV) demo build dist
