# make demo      the example shop: 500 orders through killed workers, checked to the last unit of stock
# make test      style, types, directions, then the tests on every pair of database and broker found here
# make check     style, types, directions alone
# make nightly   what `make test` leaves out: more examples, kills by hundreds, long or measured runs, every version supported
# make chaos     mixed workflows while workers, broker and database break: SEED= DURATION= PAIR= DATABASE_URL= BROKER_URL=
# make docs      the documentation, as HTML in docs/_build
#
# Each makes the virtual environment it needs in $(VENV) with the first Python of 3.10 to 3.13 found here.

VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && { echo $$p; break; }; done)
BIN := $(VENV)/bin
ARGS ?=
DURATION ?= 120
PAIR ?= postgres+redis
export DATABASE_URL BROKER_URL
COMMA := ,

.PHONY: demo test check chaos nightly docs clean

demo: $(VENV)/.demo
	$(BIN)/python example_project/manage.py demo $(ARGS)

test: check
	$(BIN)/python tests/run.py $(ARGS)

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chaos: $(VENV)/.test
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) --duration $(DURATION) --pair $(PAIR) $(ARGS)

nightly: $(VENV)/.test $(VENV)/.nightly
	$(BIN)/python tests/run.py --night-alone $(ARGS)
	$(BIN)/python -m tests.mutations --output benchmarks/mutations.txt
	$(BIN)/python benchmarks/recovery.py --output benchmarks/recovery.txt
	$(BIN)/python benchmarks/recovery.py --in-flight 200 --output benchmarks/recovery_in_flight.txt
	TEST_DB=postgres TEST_BROKER=redis $(BIN)/python -m benchmarks.atomic_kills --kills 200
	TEST_DB=postgres TEST_BROKER=redis $(BIN)/python -m benchmarks.cancel_offsets --purchases 500
	$(BIN)/python benchmarks/loan_deploy.py --instances 10000
	TEST_DB=postgres TEST_BROKER=redis $(BIN)/python -m benchmarks.purge
	$(BIN)/python benchmarks/chaos.py --seeds 3
	PYENV_VERSION="$$(pyenv versions --bare 2>/dev/null | grep -E '^3\.1[0-3]\.' | paste -sd: -)" $(BIN)/nox

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build

# One stamp for each set of extras: made again when pyproject.toml changes.
$(VENV)/.demo: EXTRAS = postgres,mysql,redis
$(VENV)/.test: EXTRAS = test$(if $(CI),$(COMMA)browser)
$(VENV)/.nightly: EXTRAS = test,nightly
$(VENV)/.docs: EXTRAS = docs
$(VENV)/.demo $(VENV)/.test $(VENV)/.nightly $(VENV)/.docs: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

$(BIN)/pip:
	@test -n '$(PYTHON)' || { echo 'No Python 3.10 to 3.13 was found. Install one, or say PYTHON=/path/to/python3.'; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .nox build dist docs/_build
