"""Only two modules of the product ask which system it runs on: of files and processes, and of the hardware."""

import pytest
from places import ROOT
from system_rule import ASK, complaints, main


@pytest.mark.parametrize(
    "line",
    [
        'if sys.platform == "linux":',
        'if os.name == "nt":',
        "found = platform.system()",
        'if hasattr(os, "fork"):',
        'flags = getattr(os, "O_BINARY", 0)',
        "    import fcntl",
        "import msvcrt",
        "cores = os.sched_getaffinity(0)",
        "os.sched_setaffinity(0, cores)",
        'Path("/proc/self/task")',
        'Path("/sys/fs/cgroup/cpu.max")',
        'Path("/dev").glob("davinci*")',
        "import resource",
    ],
)
def test_a_question_about_the_system_is_refused_outside_their_modules(line):
    source = f"import os\n{line}\n"
    (complaint,) = complaints({"workers/pools/new.py": source, **dict.fromkeys(ASK, source)})
    assert complaint.startswith("workers/pools/new.py:2: ")
    assert complaint.endswith(f"ask {' or '.join(ASK)}, or add there what is missing")


@pytest.mark.parametrize(
    "line", ["os.path.join(a, b)", "platform.machine()", "hasattr(oscillator, 'x')", "system.LINUX"]
)
def test_other_lines_are_not(line):
    assert complaints({"workers/pools/new.py": line}) == []


def test_nobody_else_of_the_product_asks(capsys):
    assert main(ROOT) == 0
    assert capsys.readouterr().out == ""
