#!/bin/sh
# Nothing is started: there is no configuration that fits. A daemon that runs is not
# restarted either; an operator does that, one monitor after the other.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ ! -e /etc/lockstep/lockstep.toml ]; then
	echo "lockstep: write /etc/lockstep/lockstep.toml (see /usr/share/doc/lockstep/examples), then: systemctl enable --now lockstepd"
fi
