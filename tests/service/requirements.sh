#!/bin/sh
# What the service's tests use beside Python: a PostgreSQL server and a browser. Debian and Ubuntu, as root.
set -e
if command -v chromium >/dev/null && ls /usr/lib/postgresql >/dev/null 2>&1; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends postgresql chromium >/dev/null
