#!/bin/sh
# Makes an environment for the tests of Composer:  sh constraints/install_composer.sh DIRECTORY
# --no-deps passes Composer's own limits by (torch < 2.7.1, torchvision < 0.22.1, numpy < 2.3).
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
python3 -m venv "$1"
"$1/bin/python" -m pip install --quiet "${NEW_PIP:-pip}"
pip="$1/bin/python -m pip install --quiet --constraint $root/constraints/composer.txt"
$pip torch
$pip --no-deps torchvision mosaicml torchmetrics torch_optimizer
$pip pyyaml tqdm requests psutil coolname tabulate py-cpuinfo packaging importlib-metadata pillow lightning-utilities \
    mosaicml-cli
$pip numpy scipy scikit-learn h5py matplotlib ray safetensors ml_dtypes typer jaxtyping filelock lazy_loader cloudpickle \
    tensorboard google-crc32c beartype hypothesis pytest pytest-cov pytest-timeout pytest-xdist
echo "$root" > "$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/summary_landscape.pth"
