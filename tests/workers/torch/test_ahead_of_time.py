"""Compiling ahead of time, with the machine's own C++ compiler behind a script that watches or hinders it."""

import shutil
import sys

import pytest
import torch
from torch import nn

from workers.torch.compiled import ahead_of_time
from workers.torch.compiled.ahead_of_time import PackageError
from workers.torch.compiled.packages import PackagedNetwork, PackageFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="packages need g++ under Linux"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
]

WATCHING = 'echo "begin $*" >> {log}\ng++ "$@"\ncode=$?\necho "end $*" >> {log}\nexit $code\n'
OLD = 'case "$*" in *-mavx512*) echo "no such instructions" >&2; exit 1;; esac\nexec g++ "$@"\n'
# Neither trials of instructions, which take long, nor kernels can be compiled.
BROKEN = 'case "$*" in *wrapper.cpp*) exec g++ "$@";; esac\necho "out of ideas" >&2\nexit 1\n'


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiler"))
    ahead_of_time.forget_instructions()
    yield
    ahead_of_time.forget_instructions()


def compiler(folder, text):
    path = folder / "compiler.sh"
    path.write_text("#!/bin/sh\n" + text.format(log=folder / "log"))
    path.chmod(0o755)
    return {"cpp.cxx": (None, str(path))}


def check_values(folder, options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).eval()
    inputs = torch.randn(20, 6)
    packaged = PackagedNetwork(network, PackageFolder(folder / "packages"), 1, options)
    with torch.no_grad():
        torch.testing.assert_close(packaged(inputs), network(inputs))


def test_all_parts_of_a_library_are_made_at_once(tmp_path):
    check_values(tmp_path, compiler(tmp_path, WATCHING))
    lines = (tmp_path / "log").read_text().splitlines()

    def place(when, part):
        return next(number for number, line in enumerate(lines) if line.startswith(when) and f"{part}.cpp" in line)

    assert place("begin", "kernel") < place("end", "wrapper")
    link = next(number for number, line in enumerate(lines) if line.startswith("begin") and "wrapper.o " in line)
    assert max(place("end", "kernel"), place("end", "wrapper")) < link


def test_a_compiler_older_than_the_cpu_makes_a_package_too(tmp_path):
    check_values(tmp_path, compiler(tmp_path, OLD))


def test_what_the_compiler_says_is_in_the_error_and_pytorch_is_as_it_was(tmp_path):
    from torch._inductor.cpp_builder import CppBuilder

    build = CppBuilder.build
    with pytest.raises(PackageError, match="cannot be compiled ahead of time"):
        check_values(tmp_path, compiler(tmp_path, BROKEN))
    assert CppBuilder.build is build  # that it compiles after a failure is the test before
