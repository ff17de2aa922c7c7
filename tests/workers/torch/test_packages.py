"""Packages: compiled networks that are loaded without the compiler, from a folder that nobody else can write to."""

import functools
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from scripts import run_script
from torch import nn

from workers.measurement_plan import MeasurementPlan
from workers.torch.compiled import ahead_of_time, packages
from workers.torch.compiled.ahead_of_time import PackageError
from workers.torch.compiled.compiling import compile_network
from workers.torch.compiled.packages import PackagedNetwork, PackageFolder

THREADS = 1


class Small(nn.Module):
    """Weights that a compiler likes to write into its code: a number, six values, tied ones, statistics."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6)

    def forward(self, inputs):
        return self.norm(self.second(torch.tanh(self.first(inputs)))) * self.factor


def small():
    torch.manual_seed(0)
    network = Small().eval()
    network.norm.running_mean.add_(0.3)
    return network


def inputs(count=20):
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(1))


def packaged(path, network, options=None, **choices):
    return PackagedNetwork(network, PackageFolder(path), THREADS, options or {}, **choices)


def test_a_package_is_kept_whole_for_this_user_alone(tmp_path):
    path = tmp_path / "new" / "packages"
    library = PackageFolder(path).keep("key", b"code")
    assert PackageFolder(path).find("key") == library
    assert path.stat().st_mode & 0o777 == 0o700
    assert PackageFolder(path).find("other") is None
    PackageFolder(path).discard("key")
    assert list(path.iterdir()) == []


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def link_to_library(path):
    (path / "key.so").rename(path.parent / "key.so")
    (path / "key.so").symlink_to(path.parent / "key.so")


DAMAGED = {
    "a link to the library": link_to_library,
    "another length": lambda path: (path / "key.so").write_bytes(b"cod"),
    "without facts": lambda path: (path / "key.json").unlink(),
    "other facts": lambda path: (path / "key.json").write_text("[]"),
}
OPEN_TO_OTHERS = {
    "shared": lambda path: path.chmod(0o770),
    "in a shared folder": lambda path: path.parent.chmod(0o777),
    "a link": link,
    "of another user": lambda path: os.chown(path, 12345, -1),
}


@pytest.mark.parametrize("change", [*DAMAGED, *OPEN_TO_OTHERS])
def test_what_is_damaged_is_replaced_and_a_folder_that_others_can_write_to_is_not_used(change, tmp_path):
    if change == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    folder = PackageFolder(tmp_path / "packages")
    folder.keep("key", b"code")
    (DAMAGED | OPEN_TO_OTHERS)[change](folder.path)
    assert folder.find("key") is None
    if change in DAMAGED:
        folder.keep("key", b"code")
        assert folder.find("key").read_bytes() == b"code"
        return
    with pytest.raises(PackageError, match=r"its package cannot be kept: .*(this user alone|other users can write)"):
        folder.keep("key", b"code")


def test_the_folder_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "_MOST_BYTES", 25)
    folder = PackageFolder(tmp_path / "packages")
    for index, key in enumerate(("old", "used", "middle")):
        if index < 2:
            os.utime(folder.keep(key, bytes(10)), (index, index))
    assert folder.find("old")  # which is now the one that was used last
    folder.keep("new", bytes(10))
    assert [folder.find(key) is not None for key in ("old", "used", "new")] == [True, False, True]
    folder.keep("large", bytes(100))
    assert [path.stem for path in (tmp_path / "packages").glob("*.so")] == ["large"]


@pytest.mark.parametrize(
    "call",
    [lambda network: network(inputs=inputs()), lambda network: network([inputs()]), lambda network: network()],
    ids=["by name", "in a list", "nothing"],
)
def test_what_a_package_cannot_take_is_an_error(call, tmp_path):
    with pytest.raises(PackageError, match="inputs are not tensors alone"):
        call(packaged(tmp_path, small()))


def test_the_key_knows_code_threads_and_options(tmp_path):
    other = small()
    other.norm.eps = 0.1

    def identity(network, threads=1, **options):
        return PackagedNetwork(network, PackageFolder(tmp_path), threads, options)._identity

    first = identity(small())
    changed = {identity(other), identity(small(), 2), identity(small(), **{"cpp.use_decompose_tanh": True})}
    assert len({first, *changed}) == 4
    assert identity(small()) == first


def test_attributes_are_the_networks(tmp_path):
    assert packaged(tmp_path, small()).factor.item() == 1.5
    with pytest.raises(AttributeError, match="nothing"):
        _ = packaged(tmp_path, small()).nothing


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with one package, of the small network for 20 samples, and what it gives."""
    path = tmp_path_factory.mktemp("kept")
    packages = path / "summary-landscape" / "packages"
    network = packaged(packages, small())
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(path / "compiler"))
        values = network(inputs())
    assert not network.found
    return packages, values


@pytest.mark.slow
def test_a_package_gives_the_networks_values_wherever_it_is_moved(kept):
    path, first = kept
    network = small()
    found = packaged(path, network)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        assert torch.equal(found(inputs()), first)
        assert found.found
        for _ in range(3):
            torch.testing.assert_close(found(inputs()), network(inputs()), rtol=1e-5, atol=1e-6)
            for tensor in (*network.parameters(), network.norm.running_mean):
                tensor.add_(torch.randn(tensor.shape, generator=generator))


@pytest.mark.slow
def test_another_process_needs_no_compiler(kept, tmp_path):
    path, first = kept
    torch.save((small().state_dict(), inputs(), first), tmp_path / "work.pt")
    script = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[3]), str(Path(__file__).parents[2] / "support")]!r}
import torch
from {__name__} import inputs, packaged, small
from pathlib import Path
_, values, expected = torch.load({str(tmp_path / "work.pt")!r}, weights_only=True)
network = packaged(Path({str(path)!r}), small())
with torch.no_grad():
    assert torch.equal(network(values), expected)
assert network.found
assert "torch._inductor.compile_fx" not in sys.modules and "torch._dynamo" not in sys.modules
"""
    run_script(script, env={**os.environ, "PATH": ""})


@pytest.mark.slow
def test_inputs_of_another_shape_never_meet_the_code_for_this_one(kept):
    """The code does not check: it would write beyond its memory."""
    network = packaged(kept[0], small(), builds=False)
    with torch.no_grad():
        network(inputs())
        for values in (inputs(19), inputs(40)[::2], inputs().double()):
            with pytest.raises(PackageError, match="there is no package of it"):
                network(values)


@pytest.mark.slow
def test_measuring_may_meet_a_shape_that_has_no_package_yet(kept, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept[0].parents[1]))
    monkeypatch.setattr("workers.torch.compiled.compiling._CPU_OPTIONS", {})
    network, plan = small(), MeasurementPlan(20, 1, compile=True)
    with torch.no_grad():
        found = compile_network(
            network, torch.device("cpu"), lambda run: {"loss": run(inputs()).sum().item()}, plan, builds=False
        )
        assert found.was_there
        torch.testing.assert_close(found.network(inputs(19)), network(inputs(19)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("forward", "text"),
    [
        (lambda _, values: (values, values), "its output is not one tensor"),
        (lambda _, values: values * torch.tensor([1.0, 2, 3, 4, 5, 6]), "makes tensors of numbers"),
        (lambda network, values: values * network.norm.running_mean.add_(1), "changes its buffers"),
    ],
)
def test_what_cannot_be_packaged_says_so(forward, text, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiler"))
    network = small()
    network.forward = functools.partial(forward, network)
    with torch.no_grad(), pytest.raises(PackageError, match=text):
        packaged(tmp_path / "packages", network)(inputs())


WATCHING = 'echo "begin $*" >> {log}\ng++ "$@"\ncode=$?\necho "end $*" >> {log}\nexit $code\n'
OLD = 'case "$*" in *-mavx512*) echo "no such instructions" >&2; exit 1;; esac\nexec g++ "$@"\n'
# Neither trials of instructions, which take long, nor kernels can be compiled.
BROKEN = 'case "$*" in *wrapper.cpp*) exec g++ "$@";; esac\necho "out of ideas" >&2\nexit 1\n'


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="packages need g++ under Linux")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
class TestTheCompilerBehindAScript:
    """The machine's own C++ compiler, behind a script that watches or hinders it."""

    @pytest.fixture(autouse=True)
    def asked_anew(self, monkeypatch, tmp_path):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiler"))
        ahead_of_time.forget_instructions()
        yield
        ahead_of_time.forget_instructions()

    def check_values(self, folder, script):
        path = folder / "compiler.sh"
        path.write_text("#!/bin/sh\n" + script.format(log=folder / "log"))
        path.chmod(0o755)
        network = small()
        with torch.no_grad():
            found = packaged(folder / "packages", network, {"cpp.cxx": (None, str(path))})(inputs())
            torch.testing.assert_close(found, network(inputs()))

    def test_all_parts_of_a_library_are_made_at_once(self, tmp_path):
        self.check_values(tmp_path, WATCHING)
        lines = (tmp_path / "log").read_text().splitlines()

        def place(when, part):
            return next(number for number, line in enumerate(lines) if line.startswith(when) and f"{part}.cpp" in line)

        assert place("begin", "kernel") < place("end", "wrapper")
        link = next(number for number, line in enumerate(lines) if line.startswith("begin") and "wrapper.o " in line)
        assert max(place("end", "kernel"), place("end", "wrapper")) < link

    def test_one_that_is_older_than_the_cpu_makes_a_package_too(self, tmp_path):
        self.check_values(tmp_path, OLD)

    def test_what_it_says_is_in_the_error_and_pytorch_is_as_it_was(self, tmp_path):
        from torch._inductor.cpp_builder import CppBuilder

        build = CppBuilder.build
        with pytest.raises(PackageError, match="cannot be compiled ahead of time"):
            self.check_values(tmp_path, BROKEN)
        assert CppBuilder.build is build  # that it compiles after a failure is the test before
