#!/bin/sh
# Builds a container image with MariaDB out of Debian packages alone, for
# machines whose Docker can pull from no image registry.
#
#   build-mariadb.sh [--force] SUITE...
#
# SUITE is a Debian release: bullseye (MariaDB 10.5), bookworm (10.11) or
# trixie (11.8). The image is lockstep-mariadb:VERSION. An image that this
# very script has built before is kept, unless --force is given.
#
# The image is for tests only: root may log in from anywhere with no password.
# internal/testdb publishes its ports on 127.0.0.1 and nowhere else.
#
# Needs root, debootstrap and a Docker engine. Environment:
#   MIRROR  Debian mirror (default: debootstrap's own)
#   TMPDIR  where the tree is unpacked; about 700 MB, and not mounted nodev
set -eu

image=lockstep-mariadb

say() { printf 'build-mariadb: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

version_of() {
	case $1 in
	bullseye) echo 10.5 ;;
	bookworm) echo 10.11 ;;
	trixie) echo 11.8 ;;
	*) die "unknown suite '$1': use bullseye (10.5), bookworm (10.11) or trixie (11.8)" ;;
	esac
}

# in_tree runs a command inside the tree, with a clean environment.
in_tree() {
	chroot "$work/root" /usr/bin/env -i HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		"$@"
}

build() {
	suite=$1
	version=$(version_of "$suite")
	hash=$({ echo "$suite"; cat "$0"; } | sha256sum | cut -c1-16)
	have=$(docker image inspect -f '{{ index .Config.Labels "lockstep.hash" }}' "$image:$version" 2>/dev/null || true)
	if [ -z "$force" ] && [ "$have" = "$hash" ]; then
		say "$image:$version is up to date"
		return
	fi

	work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-image.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	root=$work/root

	say "$image:$version: unpacking Debian $suite"
	# shellcheck disable=SC2086 # an empty MIRROR must vanish
	debootstrap --variant=minbase "$suite" "$root" ${MIRROR:-} >"$work/log" 2>&1 ||
		{ tail -n 20 "$work/log" >&2; die "debootstrap failed"; }

	say "$image:$version: installing mariadb-server"
	# Nothing may start inside the tree.
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	{ in_tree apt-get update &&
		in_tree apt-get install -y --no-install-recommends mariadb-server; } >"$work/log" 2>&1 ||
		{ tail -n 20 "$work/log" >&2; die "installing mariadb-server failed"; }
	in_tree mariadbd --version | grep -q "Ver $version\." ||
		die "Debian $suite brought $(in_tree mariadbd --version), not $version"

	# A fresh data directory with small files, and root open to the test's host.
	rm -rf "$root/var/lib/mysql"
	in_tree mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql \
		--auth-root-authentication-method=normal --skip-test-db --skip-name-resolve --force \
		--innodb-log-file-size=8M >"$work/log" 2>&1 ||
		{ tail -n 20 "$work/log" >&2; die "mariadb-install-db failed"; }
	in_tree mariadbd --no-defaults --bootstrap --user=mysql --datadir=/var/lib/mysql \
		--innodb-log-file-size=8M >"$work/log" 2>&1 <<-SQL ||
		FLUSH PRIVILEGES;
		CREATE USER root@'%';
		GRANT ALL PRIVILEGES ON *.* TO root@'%' WITH GRANT OPTION;
	SQL
		{ tail -n 20 "$work/log" >&2; die "setting up root failed"; }
	in_tree install -d -o mysql -g mysql -m 755 /run/mysqld

	in_tree apt-get clean
	rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/* \
		"$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
		"$root"/tmp/* "$root"/etc/resolv.conf "$root"/etc/hostname
	rm -rf "$root"/dev/* 2>/dev/null || true

	say "$image:$version: importing"
	tar -C "$root" --numeric-owner -cf - . |
		docker import \
			--change "LABEL lockstep.hash=$hash lockstep.suite=$suite" \
			--change 'USER mysql' \
			--change 'VOLUME /var/lib/mysql' \
			--change 'CMD ["mariadbd"]' \
			- "$image:$version" >/dev/null
	rm -rf "$work"
	trap - EXIT
	say "$image:$version is ready"
}

force=
if [ "${1:-}" = --force ]; then
	force=1
	shift
fi
[ $# -gt 0 ] || die "usage: build-mariadb.sh [--force] SUITE..."
for suite in "$@"; do version_of "$suite" >/dev/null; done
[ "$(id -u)" = 0 ] || die "must run as root, as debootstrap does"
for tool in debootstrap docker; do
	command -v "$tool" >/dev/null 2>&1 || die "$tool is not installed (apt-get install $tool)"
done
docker info >/dev/null 2>&1 || die "the Docker engine does not answer"
for suite in "$@"; do build "$suite"; done
