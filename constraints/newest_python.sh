#!/bin/sh
# Runs a command where python3.14 is the newest Python:  sh constraints/newest_python.sh COMMAND ...
# Where this machine has none, the command sees the programs and libraries (/usr) of a newer Debian, which debootstrap puts
# into .venv-newest-debian; settings, certificates and files stay this machine's. Elsewhere it says that it skips the command.
set -eu
python3.14 -c "" 2>/dev/null && exec "$@"
debian="$(cd "$(dirname "$0")/.." && pwd)/.venv-newest-debian"
skip() {
    echo "SKIPPED: there is no Python 3.14, and it cannot be installed here ($1)."
    exit 0
}
[ "$(id -u)" = 0 ] || skip "only root can"
command -v apt-get >/dev/null || skip "this is no Debian"
unshare --mount true 2>/dev/null || skip "mounts are not allowed"
if [ ! -e "$debian/.installed" ]; then
    command -v debootstrap >/dev/null || {
        apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null ||
            skip "no debootstrap"
    }
    rm -rf "$debian"
    # From where this machine's own packages come.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -n 1)
    output=$(debootstrap --variant=minbase \
        --include=python3,python3-venv,python3-dev,gcc,g++,make,git,libegl1,libgl1-mesa-dri testing "$debian" "$mirror" 2>&1) ||
        skip "debootstrap: $(echo "$output" | tail -n 1)"
    [ -x "$debian/usr/bin/python3.14" ] || skip "Debian has another one"
    touch "$debian/.installed"
fi
# The mount is seen by this command only, and ends with it.
exec unshare --mount sh -c 'mount --bind "$0/usr" /usr && exec "$@"' "$debian" "$@"
