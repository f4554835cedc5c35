# `make demo` and `make test` are all a fresh machine needs: they set up what they use.
# Python 3.11 or newer; Java 17 and Maven for the comparison with real Kafka (`make test`).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.developed
UV := $(shell command -v uv || echo $(BIN)/uv)

# With uv it takes seconds; pip does it where uv is missing, or cannot reach an index that pip can.
install = $(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt \
	--editable '.$(1)' || $(BIN)/python -m pip install --quiet --constraint constraints.txt \
	--editable '.$(1)'

# What runs every kernel, on sound and on damaged batches.
KERNEL_SUITES := tests/kafkalog/log/columns tests/kafkalog_cli/test_dump_both_ways.py \
	tests/kafkalog_cli/test_fast_kafka_dump.py tests/kafkalog/test_recovery_twins.py \
	tests/kafkalog/change/compaction/test_edges.py tests/kafkalog/change/compaction/test_key_map.py \
	tests/kafkalog/check/comparison/test_comparison.py tests/kafkalog/change/roll/test_replays.py \
	tests/kafkalog/log/typed/test_avro_columns.py tests/kafkalog/log/typed/test_json_columns.py \
	tests/kafkalog/log/typed/test_proto_wire.py tests/kafkalog/log/typed/test_version_columns.py

.PHONY: demo setup test test-all durations soak lint docs kafka wheel bundle deb bench clean

demo: $(INSTALLED)  ## set up, then look at the log directory in examples/
	$(BIN)/kafkalog ls examples/log-dir
	$(BIN)/kafkalog dump-segment examples/log-dir/orders-0 -n 5
	$(BIN)/kafkalog lookup-offset examples/log-dir/orders-0 --timestamp 2024-01-01T00:00:10Z --steps
	$(BIN)/kafkalog verify examples/log-dir
	$(BIN)/kafkalog find examples/log-dir -t orders -k user-48 -n 3

setup: $(STAMP)  ## all that the other targets use

test: $(STAMP)  ## set up, then run the tests: a sample of long proofs, a quarter of an hour
	$(BIN)/python -m pytest -n auto --durations=40 --junitxml=build/tests.xml

test-all: $(STAMP)  ## every test with every case; GROUPS="spark crash" runs only these
	$(BIN)/python -m tests.groups $(GROUPS)

durations: $(STAMP)  ## run the tests, and note how long each takes, by which runs are balanced
	KAFKALOG_DURATIONS=tests/durations.json $(BIN)/python -m pytest -n auto

soak: $(STAMP)  ## hours: a million hostile inputs, thousands of logs beside Kafka, new cases each time
	KAFKALOG_GUARDED=1 $(BIN)/python -m tests.soak $(SOAK)
	$(BIN)/python -m tests.kafka.differential $(DIFFERENTIAL)
	KAFKALOG_TESTS=soak $(BIN)/python -m pytest -s $$(grep -rlE '(tries_everything|soaks|[^_]sampled|=examples)\(|mark\.thorough' --include='test_*.py' tests)

lint: $(STAMP)  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)  ## rewrite what docs/ shows of the code
	$(BIN)/python -m docgen

kafka: $(STAMP)  ## take RELEASE of Kafka, 4.4.0 say, into the tables of formats/; print what it changes
	$(BIN)/python -m releases $(RELEASE) $(if $(BEFORE),--before $(BEFORE))

wheel: $(STAMP)  ## the wheel and the archive of the sources, in dist
	rm -rf build/lib* build/bdist*
	$(BIN)/python -m build

bundle: $(STAMP)  ## a folder for hosts without Python, and its archive, in dist
	$(BIN)/python -m delivery.bundle $(if $(EXTRAS),--extras $(EXTRAS))

deb: bundle  ## the bundle as a package of Debian, in dist
	$(BIN)/python -m delivery.debian dist/kafkalog-*-linux-*/

bench: $(STAMP)  ## measure everything beside Kafka's tools, for docs/performance.md: up to an hour and a half
	$(BIN)/python -m benchmarks --into benchmarks/results/kafka.json
	$(BIN)/python -m docgen

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	command -v $(UV) || $(BIN)/python -m pip install --quiet --constraint constraints.txt uv || true
	$(call install,)
	touch $@

# With compiled modules: else each of the processes that tests start compiles them again.
$(STAMP): $(INSTALLED)
	$(call install,[dev])
	$(BIN)/python -m compileall -q formats kafkalog kafkalog_cli pyspark_kafkalog
	touch $@

clean:
	rm -rf $(VENV) build dist tests/kafka/target tests/kafka/iceberg/target releases/target
