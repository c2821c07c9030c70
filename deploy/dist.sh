#!/bin/sh
# Builds static binaries, archives and packages into dist/.
#
#   deploy/dist.sh                 for amd64 and arm64
#   ARCHES=amd64 deploy/dist.sh    for one
#
# VERSION is that of git, unless it is set.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
NFPM=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
ARCHES=${ARCHES:-amd64 arm64}
VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
# Packages need a version that begins with a digit and has no hyphen.
PACKAGE_VERSION=$(echo "${VERSION#v}" | tr -- - .)
case $PACKAGE_VERSION in [0-9]*.[0-9]*) ;; *) PACKAGE_VERSION=0.0.0.$PACKAGE_VERSION ;; esac
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export PACKAGE_VERSION SOURCE_DATE_EPOCH

out=$PWD/dist
rm -rf "$out"
mkdir -p "$out"

# What does not depend on the architecture.
common=$out/stage/common
mkdir -p "$common/completions"
CGO_ENABLED=0 $GO build -trimpath -o "$common/bin/" ./cmd/lockstepd ./cmd/lockstepctl
"$common/bin/lockstepctl" man "$common/man"
"$common/bin/lockstepd" man "$common/man"
gzip -9n "$common"/man/*
for program in lockstepd lockstepctl; do
	for shell in bash zsh fish; do
		"$common/bin/$program" completion $shell >"$common/completions/$program.$shell"
	done
done

for ARCH in $ARCHES; do
	STAGE=$out/stage/$ARCH
	export ARCH STAGE
	mkdir -p "$STAGE"
	cp -r "$common/man" "$common/completions" "$STAGE/"
	CGO_ENABLED=0 GOOS=linux GOARCH=$ARCH $GO build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o "$STAGE/bin/" ./cmd/lockstepd ./cmd/lockstepctl
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$STAGE" -czf "$out/lockstep_${PACKAGE_VERSION}_linux_$ARCH.tar.gz" bin man completions
	for packager in deb rpm; do
		$GO run $NFPM package --config deploy/package/nfpm.yaml --packager $packager --target "$out/"
	done
done
rm -rf "$out/stage"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
