#!/bin/sh
# $1 is "remove" (deb) or 0 (rpm) when the package goes, else it is upgraded.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now lockstepd.service || true
	fi
	;;
esac
