FUZZTIME ?= 20s
ASSETS   := .build/kube
PINNED   := $(shell cat tests/kube/go.mod tests/kube/kube.go tests/etcd/go.mod | cksum | tr ' ' '-')
STAMP    := $(ASSETS)/stamp-$(PINNED)
# Unit tests need no disk: those of power failures and of kills are below tests/.
MEMORY   := $(shell .ci/memory)
# The race detector does not look into compression and checksums, which took a third of its
# time. It must look into all that uses sync/atomic, also through generics: it would not see
# what that orders, and report races that are none (encoding/json, protobuf).
UNWATCHED := $(patsubst %,'-gcflags=%=-race=false -dwarf=false',compress/flate hash/... github.com/klauspost/compress/...)
# What makes much garbage, and measures no memory, takes a fifth less processor time if it
# collects it less often: the compiler, and below lint.
SELDOM   := '-toolexec=env GOGC=400'
# What is built names no folder of this machine: each checkout takes what another has built.
# It has nothing for debuggers, which takes a fifth of the compiler's time.
export GOFLAGS += -trimpath -ldflags=-s -gcflags=all=-dwarf=false $(UNWATCHED) $(SELDOM)
# The tests compile for this machine's own platform.
TARGETS  := $(filter-out $(shell go env GOOS)/$(shell go env GOARCH),linux/amd64 linux/arm64 linux/arm darwin/arm64 windows/amd64)

.PHONY: help check test model stored encrypted command cluster managers memory load torture lint cross assets demo bench fuzz

help: ## show this
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 10

check: lint ## lint, quick tests with the race detector, kill rounds, Windows: before each commit
	TMPDIR=$(MEMORY) go test -race -short -p 3 ./reflector ./boltstore ./informer ./internal/serve ./... # the longest first
	cd cmd/kubewake && TMPDIR=$(MEMORY) go test -race -short ./...
	cd tests && go test -race -short ./wake
	@$(MAKE) --no-print-directory cross TARGETS=windows/amd64

# lint has the checks of go vet that go test would repeat.
check test: export GOFLAGS += -vet=off
test: lint cross assets ## everything: check, all unit tests, end to end on a real API server
	TMPDIR=$(MEMORY) go test -race -timeout 20m -p 3 ./boltstore ./informer ./reflector ./boltstore/apifile ./internal/serve ./boltstore/live ./... # the longest first; one in three waits
	@$(MAKE) --no-print-directory -j2 model encrypted command stored
	TMPDIR=$(MEMORY) GOARCH=386 CGO_ENABLED=0 go test -exec $(CURDIR)/.ci/bits32 -run TestLargestFile ./boltstore
	@.ci/fuzz 1s plain
	@$(MAKE) --no-print-directory -j2 cluster managers memory load

# The parts of test that run beside each other.
model:
	TMPDIR=$(MEMORY) KUBEWAKE_MODEL=500000 KUBEWAKE_DAYS=5 KUBEWAKE_CORPUS=60 \
		GOGC=400 go test -timeout 20m -run 'TestModel$$|TestDayOfEdgeLife|TestCorpus|TestStalledHandler|TestReplayMemory' ./informer ./boltstore
stored:
	TMPDIR=$(MEMORY) KUBEWAKE_MODEL=10000 GOGC=400 go test -run TestStoreModel ./boltstore
	TMPDIR=$(MEMORY) GOGC=400 go test -run 'TestHandlersOf|TestIndexLives|TestFlippedSealedBytes|TestLyingDisk' ./boltstore
encrypted:
	go test -run TestDamagedPayloads ./boltstore/codec
	TMPDIR=$(MEMORY) KUBEWAKE_TEST_ENCRYPTED=1 go test -short ./fifo ./informer ./reflector
command:
	cd cmd/kubewake && TMPDIR=$(MEMORY) go test -race ./...
cluster:
	cd tests && go test -race -count=1 -timeout 30m -p 3 ./wake ./link ./kubectl ./cli ./... # the longest first
managers:
	cd informer/controllerruntime && go test -race ./...
	cd tests/controllerruntime && go test -race -count=1 -timeout 10m ./...
memory:
	cd tests && go test -count=1 ./memory
load:
	cd tests && TMPDIR=$(MEMORY) LOAD_TIME=1m go test -count=1 ./load

torture: ## the long forms: handlers stalled over a million changes, 100,000 objects under load for ten minutes, 200 kills, 100 power failures, 3100 on disks that lie, controller-runtime's tests of its cache, five million steps of the model, an hour of all faults together
	KUBEWAKE_STALL=1000000 go test -v -count=1 -timeout 1h -run TestStalledHandler ./informer
	cd tests && TMPDIR=$(MEMORY) LOAD_OBJECTS=100000 LOAD_TIME=10m go test -v -count=1 -timeout 2h ./load
	cd tests && WAKE_ROUNDS=200 go test -v -race -count=1 -timeout 1h -run 'TestKillDurable|TestKillQueue' ./wake
	cd tests && WAKE_POWER=100 WAKE_LIES=100 go test -v -race -count=1 -timeout 1h -run 'TestPowerFailure|TestLyingDevice' ./wake
	cd tests/controllerruntime && KUBEWAKE_SUITE=1 go test -v -count=1 -timeout 20m -run TestCacheSuite .
	TMPDIR=$(MEMORY) KUBEWAKE_LIES=600 go test -v -race -count=1 -timeout 1h -run TestLyingDisk ./boltstore
	TMPDIR=$(MEMORY) KUBEWAKE_MODEL=5000000 go test -v -count=1 -timeout 2h -run 'TestModel$$' ./informer
	TMPDIR=$(MEMORY) KUBEWAKE_TURMOIL=1h go test -v -race -count=1 -timeout 2h -run 'TestTurmoil$$' ./informer

lint cross: export GOGC = 400
lint: ## format, vet, staticcheck, go.mod, long lines, the public surface
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt'd:" $$out; exit 1; }
	cd tests/tools && go test -count=1 ./style
	go vet ./...
	go tool -modfile=tests/tools/go.mod staticcheck ./...
	go mod tidy -diff
	cd tests && go vet ./...
	cd tests && go tool -modfile=tools/go.mod staticcheck ./...
	cd tests && go mod tidy -diff
	@for dir in cmd/kubewake informer/controllerruntime tests/controllerruntime; do (set -ex; cd $$dir; go vet ./...; \
		go tool -modfile=$(CURDIR)/tests/tools/go.mod staticcheck ./...; go mod tidy -diff) || exit 1; done

cross: ## check that it compiles for every platform
	cd tests/tools && go vet ./... && go test ./platforms
	@bin=$$(mktemp -d) && (cd tests/tools && go build -o $$bin/platforms ./platforms) && \
		$$bin/platforms $(TARGETS) && (cd cmd/kubewake && $$bin/platforms $(TARGETS)); \
		status=$$?; rm -rf $$bin; exit $$status

assets: $(STAMP) ## build kube-apiserver, kubectl and etcd, if the pinned versions have changed

$(STAMP):
	@mkdir -p $(ASSETS)
	@echo "building etcd, kube-apiserver and kubectl into $(ASSETS): the first time this takes about ten minutes"
	cd tests/etcd && go build -o ../../$(ASSETS)/etcd go.etcd.io/etcd/server/v3
	cd tests/kube && v=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && m=$${v#v1.} && p=k8s.io/component-base/version && \
		go build -ldflags "-X $$p.gitVersion=$$v -X $$p.gitMajor=1 -X $$p.gitMinor=$${m%%.*}" \
			-o ../../$(ASSETS)/ k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
	@rm -f $(ASSETS)/stamp-* && touch $@

demo: ## see it survive, without a cluster
	go run -C tests ./examples/demo

bench: assets ## measure against client-go and others: restarts on a real API server, growth, the stream of events; draws docs/pictures
	cd tests && go run ./bench

fuzz: ## run each fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)
