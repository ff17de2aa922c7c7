#!/bin/sh
# The browser that the tests of the interactive page drive; on Debian as root it is installed.
command -v chromium >/dev/null && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0
fi
echo "No chromium, and it cannot be installed here: the tests of the interactive page will be skipped." >&2
