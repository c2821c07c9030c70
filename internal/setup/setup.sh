#!/bin/sh
# Sees to it that the tests and the demo find a MariaDB server: mariadbd on this
# machine, or a container image of it. Does nothing where there is one already.
#
#   setup.sh            the server that tests use by default, or if LOCKSTEP_DB is
#                       set those of that version
#   setup.sh VERSION... those versions; rootfs.sh has the list
set -eu

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

repo=$(cd "$(dirname "$0")/../.." && pwd)

find_mariadbd() {
	for name in mariadbd mysqld; do
		command -v "$name" 2>/dev/null && return 0
		for dir in /usr/sbin /usr/libexec /usr/local/sbin /usr/local/bin /opt/homebrew/bin; do
			if [ -x "$dir/$name" ]; then
				echo "$dir/$name"
				return 0
			fi
		done
	done
	return 1
}

docker_answers() { command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1; }

have_image() { docker image inspect "$1" >/dev/null 2>&1; }

# install_with_apt installs the server, and keeps the package from starting it.
install_with_apt() {
	say "there is no mariadbd: installing the package mariadb-server with apt-get"
	policy=/usr/sbin/policy-rc.d
	made_policy=
	if [ ! -e "$policy" ] && [ ! -L "$policy" ]; then
		say "the package's service is not started (by a temporary $policy)"
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		made_policy=1
		trap 'rm -f "$policy"' EXIT
		trap 'exit 130' INT TERM
		chmod 755 "$policy"
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q || die "apt-get update failed"
	apt-get install -q -y --no-install-recommends mariadb-server ||
		die "apt-get could not install mariadb-server; install MariaDB 10.5 or later by hand"
	if [ -n "$made_policy" ]; then
		rm -f "$policy"
		trap - EXIT INT TERM
	fi
	# Nor does it start with the machine.
	if command -v systemctl >/dev/null 2>&1; then
		systemctl disable mariadb.service >/dev/null 2>&1 || true
	fi
	find_mariadbd >/dev/null || die "the package mariadb-server brought no mariadbd"
}

# need_debootstrap installs what gets the packages of other Debian releases.
need_debootstrap() {
	if command -v debootstrap >/dev/null 2>&1; then
		return
	fi
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		say "installing the packages debootstrap and debian-archive-keyring with apt-get, to get other versions of the server with"
		export DEBIAN_FRONTEND=noninteractive
		{ apt-get update -q && apt-get install -q -y --no-install-recommends debootstrap debian-archive-keyring; } ||
			die "apt-get could not install debootstrap, which gets servers of other versions"
	fi
}

# get_versions gets servers of named versions.
get_versions() {
	need_debootstrap
	if [ "$backend" = docker ]; then
		docker_answers || die "LOCKSTEP_BACKEND is docker, and Docker does not answer"
		"$repo/integration/images/build-mariadb.sh" "$@"
	else
		"$repo/internal/setup/rootfs.sh" "$@"
	fi
}

# prepare_image sees to it that Docker has an image.
prepare_image() {
	say "there is no mariadbd: the servers run in Docker containers"
	for image in mariadb:11.8 lockstep-mariadb:11.8 lockstep-mariadb:10.11 lockstep-mariadb:10.5; do
		if have_image "$image"; then
			say "using the image $image"
			return
		fi
	done
	say "pulling the image mariadb:11.8"
	if docker pull -q mariadb:11.8; then
		return
	fi
	say "it cannot be pulled: building lockstep-mariadb:11.8 from Debian packages"
	need_debootstrap
	"$repo/integration/images/build-mariadb.sh" 11.8 ||
		die "no image could be had; install MariaDB 10.5 or later on this machine instead"
}

backend=${LOCKSTEP_BACKEND:-auto}
[ $# -gt 0 ] || [ -z "${LOCKSTEP_DB:-}" ] || set -- "$LOCKSTEP_DB"
if [ $# -gt 0 ]; then
	get_versions "$@"
elif [ "$backend" = docker ]; then
	docker_answers || die "LOCKSTEP_BACKEND is docker, and Docker does not answer"
	prepare_image
elif mariadbd=$(find_mariadbd); then
	say "using $mariadbd ($("$mariadbd" --no-defaults --version 2>/dev/null | sed 's/.*Ver //'))"
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	install_with_apt
elif [ "$backend" = auto ] && docker_answers; then
	prepare_image
elif [ "${LOCKSTEP_NO_SERVERS:-}" = 1 ]; then
	say "there is no mariadbd and no Docker: tests that need a server are skipped (LOCKSTEP_NO_SERVERS=1)"
else
	die "there is no mariadbd, and neither apt-get as root nor Docker to get one with.
Do one of these:
  - install MariaDB 10.5 or later (Debian, Ubuntu: sudo apt-get install mariadb-server;
    Fedora: sudo dnf install mariadb-server; macOS: brew install mariadb);
  - start Docker;
  - set LOCKSTEP_NO_SERVERS=1 to skip all tests that need a server."
fi
