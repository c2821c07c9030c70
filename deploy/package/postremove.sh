#!/bin/sh
# The configuration and the account stay.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
