#!/bin/sh
# The account that lockstepd runs as.
set -e
if ! getent group lockstep >/dev/null; then
	groupadd --system lockstep
fi
if ! getent passwd lockstep >/dev/null; then
	useradd --system --gid lockstep --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin --comment "Lockstep monitor" lockstep
fi
