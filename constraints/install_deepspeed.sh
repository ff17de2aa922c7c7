#!/bin/sh
# Makes an environment for the tests of DeepSpeed:  sh constraints/install_deepspeed.sh DIRECTORY
# It is built without its operators for GPUs; on CPUs it compiles one of its own at the first start.
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
python3 -m venv "$1"
"$1/bin/python" -m pip install --quiet "${NEW_PIP:-pip}"
pip="$1/bin/python -m pip install --quiet --constraint $root/constraints/core.txt --constraint $root/constraints/deepspeed.txt"
$pip torch wheel setuptools
$pip numpy scipy scikit-learn h5py matplotlib ray safetensors ml_dtypes typer jaxtyping filelock lazy_loader cloudpickle tqdm \
    beartype hypothesis pytest pytest-cov pytest-timeout psutil
$pip hjson py-cpuinfo msgpack einops ninja pydantic packaging
DS_ACCELERATOR=cpu DS_BUILD_OPS=0 $pip --no-deps --no-build-isolation deepspeed
echo "$root" > "$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/summary_landscape.pth"
