#!/bin/sh
# Builds a container image of MariaDB out of Debian packages alone, for machines
# whose Docker can pull from no image registry.
#
#   build-mariadb.sh [--force] VERSION...
#
# VERSION is 10.5, 10.11 or 11.8; internal/setup/rootfs.sh gets its packages. The
# image is lockstep-mariadb:VERSION. One that is up to date is kept, unless --force
# is given.
#
# The image is for tests only: root may log in from anywhere with no password.
# internal/testdb publishes its ports on 127.0.0.1 and nowhere else.
#
# Needs root, debootstrap and a Docker engine.
set -eu

image=lockstep-mariadb
repo=$(cd "$(dirname "$0")/../.." && pwd)
user=999

say() { printf 'build-mariadb: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

build() {
	"$repo/internal/setup/rootfs.sh" "$1"
	dir=$("$repo/internal/setup/rootfs.sh" --path "$1")
	hash=$({ echo "$dir"; cat "$0"; } | sha256sum | cut -c1-16)
	have=$(docker image inspect -f '{{ index .Config.Labels "lockstep.hash" }}' "$image:$1" 2>/dev/null || true)
	if [ -z "$force" ] && [ "$have" = "$hash" ]; then
		say "$image:$1 is up to date"
		return
	fi

	work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-image.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	data=$work/root/var/lib/mysql
	mkdir -p "$work/root/var/lib" "$work/root/run/mysqld"

	# A fresh data directory with small files, and root open to the test's host.
	"$dir/base/bin/mariadb-install-db" --no-defaults --user=root --datadir="$data" \
		--auth-root-authentication-method=normal --skip-test-db --skip-name-resolve --force \
		--innodb-log-file-size=8M >"$work/log" 2>&1 ||
		{ tail -n 20 "$work/log" >&2; die "mariadb-install-db failed"; }
	"$dir/base/sbin/mariadbd" --no-defaults --bootstrap --user=root --datadir="$data" \
		--innodb-log-file-size=8M >"$work/log" 2>&1 <<-SQL ||
		FLUSH PRIVILEGES;
		CREATE USER root@'%';
		GRANT ALL PRIVILEGES ON *.* TO root@'%' WITH GRANT OPTION;
	SQL
		{ tail -n 20 "$work/log" >&2; die "setting up root failed"; }
	chown -R "$user:$user" "$data" "$work/root/run/mysqld"

	say "$image:$1: importing"
	tar --numeric-owner -cf - -C "$dir/root" . -C "$work/root" var/lib/mysql run/mysqld |
		docker import \
			--change "LABEL lockstep.hash=$hash" \
			--change "USER $user:$user" \
			--change 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' \
			--change 'VOLUME /var/lib/mysql' \
			--change 'CMD ["mariadbd"]' \
			- "$image:$1" >/dev/null
	rm -rf "$work"
	trap - EXIT
	say "$image:$1 is ready"
}

force=
if [ "${1:-}" = --force ]; then
	force=1
	shift
fi
[ $# -gt 0 ] || die "usage: build-mariadb.sh [--force] VERSION..."
for version in "$@"; do
	case $version in
	10.5 | 10.11 | 11.8) ;;
	*) die "there is no image of version '$version': use 10.5, 10.11 or 11.8" ;;
	esac
done
[ "$(id -u)" = 0 ] || die "must run as root, so that files keep their owners"
command -v docker >/dev/null 2>&1 || die "docker is not installed"
docker info >/dev/null 2>&1 || die "the Docker engine does not answer"
for version in "$@"; do build "$version"; done
