#!/bin/sh
# What the service's tests use beside Python: a PostgreSQL server and a browser. Debian and Ubuntu, as root.
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends postgresql chromium >/dev/null
