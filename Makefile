# Nothing but Python 3.11 or newer and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8080

.PHONY: help install browser run check test test-divided test-citus pooler test-clients lint guide wheel lock sbom bench matrix soak pictures clean

help:
	@echo 'make install   .venv with everything in it'
	@echo 'make run       install, start PostgreSQL, load a demo company, serve on $(HOST):$(PORT)'
	@echo 'make check     install, check style and types, run the quick tests'
	@echo 'make test      install, run every test'
	@echo 'make test-divided  the suites of imports, changes and reads over tables in shards (BDS_TEST_CITUS_URL: on a cluster of Citus)'
	@echo 'make test-citus    the same on a cluster, and the suites of Citus; says what is missing without one'
	@echo 'make test-clients  install clients of others from npm, read the service with them'
	@echo 'make lint      install, check style and types'
	@echo 'make guide     build the documents as a site, which the service shows at /docs/guide'
	@echo 'make wheel     build the package, with the guide, into dist/'
	@echo 'make lock      choose the newest versions of what a server installs, into requirements.lock'
	@echo 'make sbom      build the package and its bill of materials (CycloneDX) into dist/'
	@echo 'make soak      install, work against the service with everything under faults for SECONDS=600 (SEED=), and check'
	@echo 'make matrix    install, do the same work on several servers, locales, encodings and owners (QUICK=1, SECONDS=, PG_BIN=)'
	@echo 'make pictures  install, take the pictures of the README anew, with Chromium'
	@echo 'make bench     install, measure against the floors (ROWS=, ITEMS=, SCALE=, RECORDS=, JSON=1)'

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev,all]'
	@touch $@

run: install
	@$(BIN)/bds demo --serve --host $(HOST) --port $(PORT)

# The web pages are tested in the machine's own Chromium.  Where there is none, root gets it from Debian; else those tests are skipped.
browser:
	@for name in chromium chromium-browser google-chrome; do if command -v $$name > /dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get -qq update > /dev/null 2>&1 && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium fonts-dejavu-core > /dev/null 2>&1; then \
		echo 'make test: installed chromium'; \
	else \
		echo 'make test: no Chromium here and none could be installed, so the browser tests of the web pages are skipped'; \
	fi

# Four processes, each with a PostgreSQL of its own: tests that wait leave two cores idle otherwise; tests/conftest.py orders the
# files.  Commands that tests start find compiled modules, whatever the environment says:
# to compile them at each start takes longer than what is tested.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
PARALLEL := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# At first one process compiles what it imports: four would each compile all of it at the same time.
$(VENV)/.compiled: $(VENV)/.installed
	@$(PYTEST) --collect-only -qq > /dev/null 2>&1 || true
	@touch $@

test: install pooler browser $(VENV)/.compiled
	$(PYTEST) $(PARALLEL)

# A cluster has one template database, for one process of pytest.
test-divided: install $(VENV)/.compiled
	BDS_TEST_DIVIDED=$(or $(BDS_TEST_DIVIDED),4) $(PYTEST) $(PARALLEL) $(if $(BDS_TEST_CITUS_URL),--numprocesses 0) \
		tests/feed tests/changes tests/odata tests/divided tests/citus \
		$(if $(BDS_TEST_CITUS_URL),,tests/database/test_isolation.py tests/database/test_turn.py tests/webhooks/test_registration.py)

# Before a release.  The suites prepare the database of the URL, which is a coordinator's, by themselves.
test-citus:
	@if [ -z "$(BDS_TEST_CITUS_URL)" ]; then \
		echo 'make test-citus: set BDS_TEST_CITUS_URL to the coordinator of a cluster (Citus 14, two workers or more, a superuser)'; exit 1; \
	fi
	$(MAKE) test-divided

# For every day: nothing that starts processes of its own, a browser or npm, or takes long.
check: lint $(VENV)/.compiled
	$(PYTEST) $(PARALLEL) -m 'not slow and not processes'

# The tests of poolers are skipped without PgBouncer; root on Debian gets it, quietly or not at all.
pooler:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && [ ! -x /usr/sbin/pgbouncer ]; then \
		apt-get install -y -qq --no-install-recommends pgbouncer > /dev/null 2>&1 || true; \
	fi

# Clients of others, in the versions of the lock file; where npm is missing, the end of the run lists those from npm as skipped.
test-clients: install browser
	@if command -v npm > /dev/null && command -v node > /dev/null; then \
		mkdir -p $(VENV)/clients && cp tests/clients/package.json tests/clients/package-lock.json $(VENV)/clients/ && \
		npm ci --prefix $(VENV)/clients --ignore-scripts --no-audit --no-fund --loglevel=error; \
	fi
	$(BIN)/python -m pytest tests/clients

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

guide: install
	@$(BIN)/mkdocs build --quiet --config-file guide/mkdocs.yml

wheel: guide
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# Tools of a release alone, in an environment of their own.
$(VENV)/tools/.installed:
	$(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9' 'cyclonedx-bom>=7'
	@touch $@

# What deploy/Dockerfile installs, for every platform; the embedded PostgreSQL is for trials and the MCP server for the machines of
# assistants, so neither is in it.
lock: install $(VENV)/tools/.installed
	$(VENV)/tools/bin/uv pip compile --quiet --universal --python-version 3.11 --extra excel --extra pdf --extra docs \
		--upgrade --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--output-file requirements.lock pyproject.toml

sbom: wheel $(VENV)/tools/.installed
	rm -rf $(VENV)/sbom
	$(PYTHON) -m venv --without-pip $(VENV)/sbom
	$(BIN)/pip --python $(VENV)/sbom/bin/python install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip --python $(VENV)/sbom/bin/python install --quiet --disable-pip-version-check --no-index --no-deps --find-links dist \
		business-data-service
	$(VENV)/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --mc-type application \
		--output-file dist/sbom.json $(VENV)/sbom/bin/python

bench: install
	@$(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS)) $(if $(ITEMS),--items $(ITEMS)) $(if $(SCALE),--scale $(SCALE)) $(if $(RECORDS),--records $(RECORDS)) $(if $(JSON),--json)

# Of the seconds, some are for the start, the checks and the proof that they find what is wrong.
soak: install
	@$(BIN)/python -m soak $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

# Root on Debian gets the locales and PgBouncer, quietly or not at all; what the machine lacks is listed as not run.
matrix: install pooler
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && ! locale -a | grep -qi '^tr_TR.utf'; then \
		apt-get install -y -qq --no-install-recommends locales-all > /dev/null 2>&1 || true; \
	fi
	@PG_BIN='$(PG_BIN)' $(BIN)/python -W ignore -m matrix $(if $(QUICK),--quick) $(if $(SECONDS),--seconds $(SECONDS))

pictures: install browser
	@$(BIN)/python -W ignore -m tests.docs.pictures

clean:
	rm -rf $(VENV) app/guide dist build *.egg-info .mypy_cache .ruff_cache .pytest_cache
