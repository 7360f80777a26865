# Every command makes its own virtual environment when there is none, installs the pinned versions of constraints.txt,
# and runs; the next run skips the install until pyproject.toml or constraints.txt changes.
#
#   make demo     log-loss beside aimfor on two small problems, then fit and evaluate on a table: demo/
#   make test     the tests, without those marked slow
#   make slow     the tests marked slow
#   make bench    time and memory of the loss beside log-loss: benchmarks/results/engine.csv and .png
#   make benchmarks  reproduce some cells of every table in docs/results and compare them with the committed ones; half an hour
#   make lint     ruff, the layers of the package, the length of sentences in README.md and docs, of files and functions, workflows
#   make types    pyright
#   make docs     the site, warnings as errors: docs/_build/html
#   make docs-check  Chromium walks the site: links, console, width of a phone, search
#   make release-check  build the release and try it in empty environments: dist/
#   make versions the other Pythons here, and the lowest versions of what the package needs
#   make clean    remove everything made here, the virtual environment too

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RIVALS := $(VENV)-rivals
S3 := $(VENV)-s3
# Two workers with one thread each are faster than one worker with two: most tensors in the tests are small.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo test slow bench benchmarks lint types docs docs-check release-check versions clean
.NOTPARALLEL: # two installs into one environment would collide

demo: $(VENV)/.installed-demo
	$(BIN)/python -m aimfor demo --out demo

test: $(VENV)/.installed-dev $(VENV)/.browser $(S3)/.installed
	$(PYTEST)

slow: $(VENV)/.installed-dev $(VENV)/.browser $(VENV)/.postgresql $(VENV)/.spark $(S3)/.installed
	$(PYTEST) -m slow

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.cost.engine

benchmarks: $(VENV)/.installed-dev $(RIVALS)/.installed
	$(BIN)/python -m benchmarks.reproduce --rivals $(RIVALS)/bin/python

lint: $(VENV)/.installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/prose.py
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows

types: $(VENV)/.installed-dev
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

docs: $(VENV)/.installed-docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

docs-check: docs $(VENV)/.installed-dev $(VENV)/.browser
	$(BIN)/python scripts/walk_site.py

release-check: $(VENV)/.installed-dev
	$(BIN)/python scripts/release_check.py

versions: $(VENV)/.installed-dev
	$(BIN)/python scripts/version_check.py

clean:
	rm -rf $(VENV) $(RIVALS) $(S3) build dist demo docs/_build docs/gallery src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed-demo: pyproject.toml constraints.txt $(VENV)/.made
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[sklearn,cli,report]'
	touch $@

# It holds all that the demo needs, hence both stamps.
$(VENV)/.installed-dev: pyproject.toml constraints.txt $(VENV)/.made
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,dev,integration,triton]'
	touch $(VENV)/.installed-demo $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt $(VENV)/.made
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,docs]'
	touch $@

# Rivals of the benchmarks, in an environment of their own. LibAUC and AP-Perf are installed without their requirements,
# which would replace torch; benchmarks/rivals/requirements.txt has what they need of them.
$(RIVALS)/.installed: benchmarks/rivals/requirements.txt constraints.txt
	$(PYTHON) -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet -c constraints.txt torch==2.13.0 -r benchmarks/rivals/requirements.txt
	$(RIVALS)/bin/python -m pip install --quiet --no-deps libauc==2.0.1 ap_perf==0.1.1
	touch $@

# The tests of the page open it in Chromium. Where it is absent and cannot be installed, they are skipped with a reason.
$(VENV)/.browser: $(VENV)/.made
	@command -v chromedriver > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	  && { apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium chromium-driver; } > /dev/null 2>&1; } \
	  || echo "Chromium could not be installed: the tests of the page will be skipped"
	touch $@

# The tests of object storage talk to an S3 server. It needs an older python-dateutil than the tests, hence its own
# environment. Where it cannot be installed, they are skipped with a reason.
$(S3)/.installed:
	@{ $(PYTHON) -m venv $(S3) && $(S3)/bin/python -m pip install --quiet 'moto[s3]>=5' flask flask-cors; } > /dev/null 2>&1 \
	  || { rm -rf $(S3) && mkdir $(S3) && echo "moto could not be installed: the tests of object storage will be skipped"; }
	touch $@

# The slow tests query a PostgreSQL server of their own. Where it cannot be installed, they are skipped with a reason.
$(VENV)/.postgresql: $(VENV)/.made
	@[ -d /usr/lib/postgresql ] || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	  && { apt-get update -qq; apt-get install -y -qq --no-install-recommends postgresql; } > /dev/null 2>&1; } \
	  || echo "PostgreSQL could not be installed: the tests of it will be skipped"
	touch $@

# One slow test runs a recipe for Spark, which needs Java. Where they cannot be installed, it is skipped with a reason.
$(VENV)/.spark: $(VENV)/.installed-dev
	@{ { command -v java > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless; }; } \
	  && $(BIN)/python -m pip install --quiet -c constraints.txt pyspark; } > /dev/null 2>&1 \
	  || echo "Spark could not be installed: the test of its recipe will be skipped"
	touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "aimfor needs Python 3.10 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	touch $@
