#!/bin/sh
# OpenGL without a display or a graphics card, with which heroes are rendered; on Debian as root it is installed.
ldconfig -p 2>/dev/null | grep -q 'libEGL\.so\.1' && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libegl1 libgl1-mesa-dri >/dev/null && exit 0
fi
echo "No EGL, and it cannot be installed here: the tests that render heroes will be skipped." >&2
