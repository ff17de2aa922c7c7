"""What a change can break follows from the imports near it."""

from pathlib import Path

import pytest
import rotation
import selection
from chosen import in_share
from imports import Imports
from places import ROOT
from selection import environments, select, versions

pytestmark = pytest.mark.room(".ci")
SLOW = "import pytest\npytestmark = pytest.mark.slow\n"
PROJECT = {
    "collectors/__init__.py": "import lazy_loader\n",
    "collectors/__init__.pyi": "from .written import write as write\nfrom .unused import unused as unused\n",
    "collectors/written.py": "from .errors import E\n",
    "collectors/unused.py": "",
    "collectors/errors.py": "",
    "workers/__init__.py": "",
    "workers/pool.py": "def open_pool():\n    from .torch import evaluator\n",
    "workers/torch/__init__.py": "",
    "workers/torch/evaluator.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..types import T\n",
    "workers/types.py": "from . import far\n",
    "workers/far.py": "",
    "workers/callback_fn.py": "from importlib import import_module\nmodule = import_module('.named', __package__)\n",
    "workers/named.py": "",
    "landscape/__init__.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .evaluation import evaluate as evaluate\n"
        "    from .picture import draw as draw\n_HOMES = {'draw': 'landscape.picture'}\n"
    ),
    "landscape/evaluation.py": "from workers.pool import open_pool\n",
    "landscape/picture.py": "from .colors import red\n",
    "landscape/colors.py": "from .far import light\n",
    "landscape/far.py": "",
    "landscape/page/__init__.py": "",
    "landscape/page/writing.py": "",
    "landscape/page/assets/page.js": "",
    "tests/conftest.py": (
        "import pytest\n@pytest.fixture\ndef script():\n    import fixture_parts\n"
        "@pytest.fixture(autouse=True)\ndef parts():\n    import automatic\n"
    ),
    "tests/support/fixture_parts.py": "",
    "tests/support/automatic.py": "",
    "tests/support/cases.py": "from collectors import write\n",
    "tests/support/script.py": "",
    "tests/support/unknown.py": "",
    "tests/test_evaluation.py": SLOW + "import landscape\nlandscape.evaluate\n",
    "tests/test_picture.py": SLOW + "from landscape import draw\n",
    "tests/test_cases.py": SLOW + "from cases import write\n",
    "tests/test_script.py": SLOW + "SCRIPT = '''\nfrom landscape import draw\n'''\n",
    "tests/test_page.py": SLOW + "from landscape.page.writing import page\n",
    "tests/test_marked.py": SLOW
    + "@pytest.mark.room('docs', 'workers.types', 'tests/support/script.py')\ndef test_it(script): pass\n",
    "tests/child.py": "from landscape import draw\n",
    "tests/test_child.py": SLOW + "pytestmark = pytest.mark.room('tests/child.py')\n",
    "tests/test_named.py": SLOW + "import workers.callback_fn\n",
    "tests/test_quick.py": "from landscape import draw\n",
    "docs/page.md": "",
}
ALL = [Path(path).stem for path, text in PROJECT.items() if text.startswith(SLOW)]


@pytest.fixture(scope="module")
def ours():
    return Imports(ROOT)


@pytest.fixture
def project(tmp_path):
    for path, text in PROJECT.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("workers/torch/evaluator.py", set()),
        ("workers/pool.py", {"test_evaluation"}),
        ("landscape/evaluation.py", {"test_evaluation"}),
        ("landscape/picture.py", {"test_picture", "test_script", "test_child"}),
        ("landscape/colors.py", {"test_picture", "test_script", "test_child"}),
        ("landscape/far.py", set()),
        ("collectors/errors.py", {"test_cases"}),
        ("collectors/unused.py", set()),
        ("workers/types.py", {"test_marked"}),
        ("workers/far.py", set()),
        ("workers/named.py", {"test_named"}),
        ("landscape/__init__.py", {"test_evaluation", "test_picture", "test_script", "test_page", "test_child"}),
        ("landscape/page/assets/page.js", {"test_page"}),
        ("docs/page.md", {"test_marked"}),
        ("tests/test_page.py", {"test_page"}),
        ("tests/child.py", {"test_child"}),
        ("tests/support/cases.py", {"test_cases"}),
        ("tests/support/script.py", {"test_marked"}),
        ("tests/support/fixture_parts.py", {"test_marked"}),
        ("tests/support/automatic.py", set(ALL)),
        (".ci/run", set()),
        ("CHANGELOG.md", set()),
    ],
)
def test_a_change_selects_the_slow_tests_that_reach_it(project, changed, tests):
    found = select(Imports(project), [changed], 0)
    assert not found.everything
    assert {Path(test).stem for test in found.tests} == tests
    assert set(found.tests.values()) <= {changed, "landscape/page/writing.py", "landscape/page/__init__.py"}
    assert {Path(test).stem for test in found.others} | tests == set(ALL)


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["docs/page.md"], {"tests/test_documentation.py[page.md]"}),
        (["docs/page.md", "landscape/page/writing.py"], {"tests/test_documentation.py[page.md]"}),
        (["landscape/page/writing.py"], set()),
        (["docs/page.md", "docs/quick_start.md"], {"tests/test_documentation.py"}),
        (["docs/page.md", "docs/api/page.md"], {"tests/test_documentation.py[page.md]"}),
        (["docs/hooks.py"], {"tests/test_documentation.py"}),
        (["tests/test_documentation.py"], {"tests/test_documentation.py"}),
        (["pyproject.toml"], {"tests/test_documentation.py"}),
    ],
)
def test_of_the_documentation_the_pages_that_changed_run(project, changed, chosen):
    (project / "docs/quick_start.md").write_text("")
    (project / "docs/hooks.py").write_text("")
    (project / "docs/api").mkdir()
    (project / "docs/api/page.md").write_text("")
    marker = "@pytest.mark.room('docs', 'landscape.page')\ndef test_the_code_of(page): pass\n"
    (project / "tests/test_documentation.py").write_text(SLOW + marker)
    found = select(Imports(project), changed, 0)
    assert {test for test in found.tests if "documentation" in test} == chosen
    assert ("tests/test_documentation.py" in found.others) == ("tests/test_documentation.py" not in chosen)


@pytest.mark.slow
def test_what_chooses_tests_is_a_part_of_the_gate(ours):
    found = select(ours, ["tests/support/chosen.py"], 0)
    assert not found.everything
    assert found.tests
    assert all(test.startswith("tests/gate/") for test in found.tests)


def test_of_many_files_those_one_import_away_count_and_the_others_have_their_turn(project, monkeypatch):
    monkeypatch.setattr(selection, "MOST", 1)
    imports = Imports(project)
    near = select(imports, ["landscape/picture.py", "collectors/errors.py"], 0)
    assert {"tests/test_picture.py", "tests/test_script.py", "tests/test_child.py"} <= set(near.tests)
    turns = [select(imports, ["landscape/colors.py"], number) for number in range(3)]
    assert sorted(test for turn in turns for test in turn.tests) == [
        "tests/test_child.py", "tests/test_picture.py", "tests/test_script.py",
    ]  # fmt: skip
    assert all(len(turn.tests) + len(turn.others) == 8 for turn in turns)
    assert "slow tests that it can break: 1 files, of 3 at most 2 imports away" in selection.text(turns[0], 0)


@pytest.mark.parametrize(
    "changed",
    [
        "pyproject.toml", "Makefile", "constraints/core.txt", "tests/data/landscape_1.h5", "tests/support/unknown.py",
        None,
    ],
)  # fmt: skip
def test_some_changes_mean_everything(project, changed):
    found = select(Imports(project), [changed] if changed else None, 1)
    assert found.everything
    assert len(found.tests) == 8
    assert not found.others
    assert set(found.environments) == {environment.target for environment in selection.ENVIRONMENTS}


@pytest.mark.parametrize(
    ("gone", "user", "text"),
    [
        ("workers/gone.py", "workers/user.py", "def run():\n    from .gone import name\n"),
        ("workers/gone.py", "workers/torch/user.py", "from .. import gone\n"),
        ("workers/gone.py", "landscape/user.py", "import workers.gone\n"),
        ("workers/gone.py", "workers/user.py", "MODULE = '.gone'\nimport_module(MODULE, __package__)\n"),
        ("workers/gone.py", "tests/test_user.py", "from workers.gone import name\n"),
        ("tests/support/gone.py", "tests/test_user.py", "from gone import name\n"),
        ("tests/support/gone.py", "tests/test_user.py", "import gone\n"),
    ],
)
def test_a_module_that_is_gone_means_everything_where_it_is_still_imported(project, gone, user, text):
    assert not select(Imports(project), [gone], 1).everything
    (project / user).write_text(text)
    assert select(Imports(project), [gone], 1).everything == f"{gone} is gone, but {user} imports it"


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ("workers/user.py", "SUFFIX = '.gone'\n"),
        ("tests/test_user.py", "SCRIPT = '''\nfrom workers import named\ngone = named\n'''\n"),
    ],
)
def test_a_text_that_only_looks_like_an_import_of_a_module_is_none(project, user, text):
    (project / user).write_text(text)
    assert not select(Imports(project), ["workers/gone.py"], 1).everything


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("import json\n", r"must name what they use.*: tests/test_lost.py$"),
        ("@pytest.mark.room('landscape.nowhere')\ndef test_it(): pass\n",
         r"room\('landscape.nowhere'\) is neither a module, nor a folder"),
    ],
)  # fmt: skip
def test_a_slow_test_that_reaches_nothing_or_names_no_room_is_an_error(project, test, text):
    (project / "tests" / "test_lost.py").write_text(SLOW + test)
    with pytest.raises(ValueError, match=text):
        select(Imports(project), [], 0)


@pytest.mark.slow
def test_all_slow_tests_of_this_project_can_be_selected(ours):
    found = select(ours, ["collectors/validation.py"], 2)
    assert not found.everything
    assert found.near > 0.9 * (len(found.tests) + len(found.others))
    assert 0.8 * selection.MOST < len(found.tests) <= selection.MOST
    # MindSpore's, whose adapters do not reach it, is the one that has its turn.
    assert {environment.target for environment in selection.ENVIRONMENTS} <= set(found.environments)


@pytest.mark.parametrize(
    ("changed", "targets"),
    [
        ("workers/keras/evaluator.py", {"test-trainers", "test-keras-on-jax", "test-keras-on-tensorflow"}),
        ("workers/mindspore/evaluator.py", {"test-mindspore"}),
        ("collectors/composer/in_composer.py", {"test-composer"}),
        ("tests/frameworks/test_deepspeed.py", {"test-deepspeed"}),
        ("landscape/exchange/landscaper.py", {"test-peers"}),
        ("tests/frameworks/test_evaluator_contract.py", {environment.target for environment in selection.ENVIRONMENTS}),
        ("tests/conftest.py", {environment.target for environment in selection.ENVIRONMENTS}),
        ("tests/frameworks/keras_cases.py", {"test-trainers", "test-keras-on-jax", "test-keras-on-tensorflow"}),
        ("tests/support/chromium.py", set()),
        ("tests/support/chosen.py", set()),
        ("landscape/figures/contour.py", set()),
    ],
)
def test_adapters_and_contracts_select_environments_and_one_of_the_others_has_its_turn(ours, changed, targets):
    for number in (0, 1, 17):
        found = environments(ours, [changed], "", number)
        turns = [target for target, why in found.items() if why == f"its turn in change {number}"]
        assert set(found) - set(turns) == targets
        assert len(turns) == (len(targets) < len(selection.ENVIRONMENTS))


def test_as_many_changes_as_there_are_environments_run_each_of_them(ours):
    found = [set(environments(ours, ["README.md"], "", number)) for number in range(len(selection.ENVIRONMENTS))]
    assert set().union(*found) == {environment.target for environment in selection.ENVIRONMENTS}


def test_five_changes_run_other_versions_once_each():
    assert [list(versions(number)) for number in range(5)] == [[], [], [], ["test-newest-if-there"], ["test-oldest"]]


def test_five_changes_run_every_test_once_and_cases_stay_together():
    tests = [f"tests/test_{letter}.py::test_it[{case}]" for letter in "abcdefghijklmnop" for case in range(3)]
    shares = [[test for test in tests if in_share(test, f"{number}/5")] for number in range(5)]
    assert sorted(test for share in shares for test in share) == sorted(tests)
    assert all(len({t.partition("[")[0] for t in share}) * 3 == len(share) for share in shares)


def test_pages_have_their_turn_each():
    pages = [f"tests/test_documentation.py::test_the_code_of[{letter}.md]" for letter in "abcdefghijklmnop"]
    assert len({number for number in range(5) for page in pages if in_share(page, f"{number}/5")}) > 2


@pytest.mark.slow
def test_imports_between_helpers_of_the_project_are_followed(ours):
    reached = ours.reached(ROOT / "tests" / "landscape" / "grid" / "test_plan.py")
    assert ROOT / "landscape" / "measure.py" in reached
    assert ROOT / "tests" / "conftest.py" in reached


@pytest.mark.parametrize(
    ("text", "means_everything"),
    [
        ('[project]\nclassifiers = ["Python :: 3.14"]\ndependencies = ["a"]\n[tool.ruff]\nline-length = 120\n', False),
        ('[project]\ndependencies = ["a"]\n[tool.importlinter]\nroot_packages = ["b"]\n', False),
        ('[project]\ndependencies = ["a", "b"]\n', True),
        ('[project]\ndependencies = ["a"]\n[tool.pytest.ini_options]\ntimeout = 1\n', True),
    ],
)
def test_what_no_test_sees_of_the_project_s_settings_means_nothing(repository, monkeypatch, text, means_everything):
    monkeypatch.delenv("GATE_BASE", raising=False)
    settings = repository.folder / "pyproject.toml"
    settings.write_text('[project]\ndependencies = ["a"]\n')
    repository("add", "--all")
    repository("commit", "--message", "settings")
    rotation.Rotation(1, repository("rev-parse", "HEAD")).write(repository.folder)
    settings.write_text(text)
    found, _ = selection.of_working_tree(repository.folder)
    assert bool(found.everything) == means_everything
