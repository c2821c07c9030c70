#!/bin/sh
# Gets a version of the server out of Debian packages, beside what is installed
# on this machine, for tests on several versions.
#
#   rootfs.sh VERSION...      get what is missing
#   rootfs.sh --path VERSION  print the directory, which must be there
#
# VERSION is 10.5 (Debian bullseye), 10.11 (bookworm), 11.8 (trixie) or mysql
# (sid). Nothing is installed: debootstrap fetches and verifies the packages, and
# they are unpacked below the cache directory, of which a version takes about
# 200 MB:
#
#   VERSION                 a link to the directory in use
#   VERSION-HASH/root       the file system of that Debian release
#   VERSION-HASH/base       programs that run on this machine: they start those of
#                           root with the dynamic loader and the libraries of root
#
# HASH is that of what the directory depends on. A directory gets its name when it
# is complete, so that one that is there can be used.
#
# Needs Linux, root and debootstrap. Environment:
#   XDG_CACHE_HOME  where the cache is (default: ~/.cache)
#   MIRROR          Debian mirror (default: http://deb.debian.org/debian)
set -eu

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/lockstep/servers
mirror=${MIRROR:-http://deb.debian.org/debian}

# describe sets the Debian suite and the package of a version.
describe() {
	case $1 in
	10.5) suite=bullseye package=mariadb-server-core-10.5 ;;
	10.11) suite=bookworm package=mariadb-server-core ;;
	11.8) suite=trixie package=mariadb-server-core ;;
	mysql) suite=sid package=mysql-server-core ;;
	*) die "there is no version '$1': use 10.5, 10.11, 11.8 or mysql" ;;
	esac
}

# wrap writes a program that runs one of the file system on this machine. Last
# come the given arguments, in which @ is the file system.
wrap() {
	program=$1
	[ -e "$work/root$program" ] || return 0
	target=$2
	shift 2
	{
		echo '#!/bin/sh'
		# Its OpenSSL may not know what this machine's configuration says.
		printf 'OPENSSL_CONF="%s" exec "%s" --library-path "%s" "%s" "$@"' \
			/dev/null "$dir/root$loader" "$libraries" "$dir/root$program"
		for arg in "$@"; do
			printf ' "%s"' "$(printf '%s' "$arg" | sed "s|@|$dir/root|")"
		done
		echo
	} >"$work/base/$target"
	chmod 755 "$work/base/$target"
}

wrap_all() {
	mkdir -p "$work/base/bin" "$work/base/sbin"
	ln -s ../root/usr/share "$work/base/share"
	loader=
	for found in "$work"/root/lib/*-linux-gnu*/ld-linux*.so.* "$work"/root/usr/lib/*-linux-gnu*/ld-linux*.so.*; do
		[ ! -e "$found" ] || loader=${found#"$work/root"}
	done
	[ -n "$loader" ] || die "Debian $suite has no dynamic loader"
	libraries=
	for found in "$work"/root/lib/*-linux-gnu* "$work"/root/usr/lib/*-linux-gnu* "$work"/root/usr/lib/mysql/private; do
		[ ! -d "$found" ] || libraries=$libraries${libraries:+:}$dir/root${found#"$work/root"}
	done
	share=
	for found in "$work"/root/usr/share/*/english/errmsg.sys "$work"/root/usr/share/*/charsets/Index.xml; do
		found=${found%/*/*}
		[ ! -d "$found/charsets" ] || share=${found#"$work/root"}
	done
	[ -n "$share" ] || die "$package brought no character sets"
	for name in mariadbd mysqld; do
		wrap /usr/sbin/$name sbin/$name --basedir=@/usr "--lc-messages-dir=@$share" \
			"--character-sets-dir=@$share/charsets" --plugin-dir=@/usr/lib/mysql/plugin
	done
	wrap /usr/bin/resolveip bin/resolveip
	# It is asked for the option files, and there are none.
	printf '#!/bin/sh\n' >"$work/base/bin/my_print_defaults"
	chmod 755 "$work/base/bin/my_print_defaults"
	# This one is a script.
	for name in mariadb-install-db mysql_install_db; do
		[ ! -e "$work/root/usr/bin/$name" ] ||
			{ printf '#!/bin/sh\nexec "%s" "$@" --basedir="%s"\n' "$dir/root/usr/bin/$name" "$dir/base" >"$work/base/bin/$name"
			chmod 755 "$work/base/bin/$name"; }
	done
}

fetch() {
	say "$1 is not there: fetching $package and what it needs of Debian $suite from $mirror (about 90 MB)"
	debootstrap --download-only --variant=minbase --include="$package" \
		"$suite" "$work/packages" "$mirror" >"$work/log" 2>&1 || {
		tail -n 10 "$work/log" >&2
		die "the packages of Debian $suite could not be had from $mirror: this needs the network, or MIRROR set to a Debian mirror that can be reached"
	}
	say "$1: unpacking to $dir"
	mkdir "$work/root"
	for deb in "$work"/packages/var/cache/apt/archives/*.deb; do
		{ dpkg-deb --fsys-tarfile "$deb" || echo "$deb" >"$work/failed"; } |
			tar -x -C "$work/root" --keep-directory-symlink --no-same-owner
		[ ! -e "$work/failed" ] || die "$deb cannot be unpacked"
	done
	rm -rf "$work/packages" "$work/root/usr/share/doc" "$work/root/usr/share/man" "$work/root/usr/share/locale"
}

get() {
	describe "$1"
	hash=$({ echo "$suite $package $cache"; cat "$0"; } | sha256sum | cut -c1-12)
	dir=$cache/$1-$hash
	if [ -d "$dir" ] && [ "$(readlink "$cache/$1")" = "$1-$hash" ]; then
		say "$1 is there ($dir)"
		return
	fi
	[ "$(uname -s)" = Linux ] || die "servers of other versions can only be had on Linux"
	[ "$(id -u)" = 0 ] || die "$1 is not there, and to get it debootstrap must run as root"
	command -v debootstrap >/dev/null 2>&1 ||
		die "$1 is not there, and debootstrap, which gets it, is not installed (apt-get install debootstrap)"
	mkdir -p "$cache"
	# One at a time; whoever waited finds it there.
	exec 9>"$cache/lock"
	flock 9
	if [ ! -d "$dir" ]; then
		work=$(mktemp -d "$cache/.new.XXXXXX")
		trap 'rm -rf "$work"' EXIT
		trap 'exit 130' INT TERM
		chmod 755 "$work"
		fetch "$1"
		wrap_all
		# The link to what is complete is the last step.
		rm -f "$work/log"
		mv "$work" "$dir"
		trap - EXIT
	fi
	ln -s "$1-$hash" "$cache/.link.$$"
	mv -T "$cache/.link.$$" "$cache/$1"
	exec 9>&-
	"$dir/base/sbin/mysqld" --no-defaults --version >/dev/null ||
		die "$1 does not run on this machine; remove $dir to get it anew"
	# What earlier states of this script have made, and killed runs left.
	find "$cache" -mindepth 1 -maxdepth 1 -type d \( -name "$1-*" -o -name '.new.*' \) \
		! -name "$1-$hash" -mtime +0 -exec rm -rf {} +
	say "$1 is there: $("$dir/base/sbin/mysqld" --no-defaults --version | sed 's/.*Ver //')"
}

case $cache in
*[\"\$\`\\\|@]*) die "the cache directory $cache has a character in its name that these scripts cannot quote" ;;
esac
if [ "${1:-}" = --path ] && [ $# = 2 ]; then
	describe "$2"
	cd -P "$cache/$2" 2>/dev/null || die "$2 is not there: run 'make setup LOCKSTEP_DB=$2'"
	pwd
	exit
fi
[ $# -gt 0 ] || die "usage: rootfs.sh VERSION... | rootfs.sh --path VERSION"
for version in "$@"; do describe "$version"; done
for version in "$@"; do get "$version"; done
