# Targets for people; 'make' alone lists them.

SHELL = /bin/sh
GO ?= go

# Tools that 'make lint' runs, pinned. Go builds them once and keeps them.
GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK   = honnef.co/go/tools/cmd/staticcheck@v0.8.2

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 20s
TESTTIMEOUT ?= 18m

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## build bin/lockstepd and bin/lockstepctl
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/lockstepd ./cmd/lockstepctl

.PHONY: setup
setup: ## get a MariaDB server for the tests, if there is none; LOCKSTEP_DB=11.8 gets that version
	@internal/setup/setup.sh

.PHONY: test
test: setup ## go vet, and all tests with the race detector on real servers
	$(GO) vet ./...
	$(GO) test -race -count=1 -timeout $(TESTTIMEOUT) ./...

VERSIONS ?= 10.5 10.11 11.8
.PHONY: integration
integration: ## run the tests on real servers on each of VERSIONS (10.5 10.11 11.8)
	@integration/versions.sh $(if $(RUN),-run '$(RUN)') $(VERSIONS)

.PHONY: lint
lint: ## check the formatting, and run staticcheck and golangci-lint
	@bad=$$(gofmt -l .) && if [ -n "$$bad" ]; then echo "not formatted with gofmt:"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(GOLANGCI_LINT) run ./...

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	@set -e; \
	for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "fuzz $$target in $$(dirname "$$file")"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		done; \
	done

.PHONY: bench
bench: setup ## run all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

DURATION ?= 2m
.PHONY: sim
sim: ## run the simulation for DURATION (2m), or replay SEED=N
	$(GO) test -count=1 -v -timeout 0 -run '^TestInvariants$$' ./internal/sim $(if $(SEED),-seed=$(SEED),-for=$(DURATION) -first=$$(date +%s))

.PHONY: sim-mutants
sim-mutants: ## break one rule of the code at a time, and see which invariant notices
	$(GO) run ./internal/sim/mutants

.PHONY: sim-bounds
sim-bounds: ## change one time of the timing at a time, and see from when on an invariant breaks
	$(GO) run ./internal/sim/mutants -bounds

.PHONY: demo
demo: setup ## a cluster fails over before your eyes; KEEP=1 keeps it running
	$(GO) run ./integration/demo $(if $(KEEP),-keep)

.PHONY: clean
clean: ## remove what the other targets made in this directory
	rm -rf bin coverage.out

.PHONY: dist
dist: ## build archives and packages for Linux into dist/
	VERSION='$(VERSION)' GO='$(GO)' deploy/dist.sh
