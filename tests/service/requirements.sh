#!/bin/sh
# What the service's tests use beside Python: a PostgreSQL server, a browser (Debian and Ubuntu, as root), and axe, which
# looks for what people with a screen reader or weak sight cannot use. Without npm the tests with axe are skipped. An S3
# server (moto) goes into an environment of its own, because its libraries do not go with ours.
set -e
AXE=4.14.0
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -f "$here/.axe/axe.min.js" ] && command -v npm >/dev/null; then
  place=$(mktemp -d)
  if (cd "$place" && npm pack --silent "axe-core@$AXE" >/dev/null 2>&1 && tar xzf axe-core-*.tgz); then
    mkdir -p "$here/.axe" && cp "$place/package/axe.min.js" "$place/package/LICENSE" "$here/.axe/"
  fi
  rm -rf "$place"
fi
s3="$here/../engine/.s3"
if [ ! -x "$s3/bin/moto_server" ]; then
  { python3 -m venv "$s3" && "$s3/bin/pip" install -q "moto[s3]==5.2.5" "flask==3.1.3" "flask-cors==6.0.5"; } || rm -rf "$s3"
fi
if command -v chromium >/dev/null && ls /usr/lib/postgresql >/dev/null 2>&1; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends postgresql chromium >/dev/null
