"""``landscape evaluate``: the same planes as in Python, from what is typed."""

import re

import numpy as np
import pytest
import torch
from command_line import command, invoke
from examples import BOWL_TARGET, batch_norm, bowl, bowl_loss, train_run
from places import SUPPORT
from remote_stores import empty_memory

from collectors.run_directory.directory import RunDirectory
from collectors.weights.safetensors_file import write_checkpoint
from landscape import Landscape, Plane, evaluate, functions, line_between, pca_plane, random_plane
from landscape.commands.arguments import TypedCheckpoint
from landscape.errors import LandscapeWriteError
from landscape.facts import summary_text
from landscape.planes import plane_through, random_line

FIRST, SECOND = [1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 2.0, -1.0]
CALLBACKS = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
from examples import batch_norm, bowl

calls = []

def counted():
    calls.append(1)
    return bowl()

def nothing():
    return 3

def raising():
    return {{}}["x"]

class Damaged:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise OSError("row 0 is damaged")

def damaged():
    loss, network, _, _ = batch_norm()
    return loss, network, Damaged(), {{}}
"""


OBLIQUE = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Checkpoints of a bowl and of a small network, a run, and directions."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "evaluate_callbacks.py").write_text(CALLBACKS)
    for name, weights in (("start", [1.0, 2, 3, 4]), ("target", BOWL_TARGET), ("third", [0.0, 1, -1, 2])):
        write_checkpoint(folder / f"{name}.safetensors", {"weight": np.array(weights)})
    torch.save({"weight": torch.tensor([2.0, 2, 2, 2], dtype=torch.float64)}, folder / "fourth.pt")
    write_checkpoint(folder / "first.safetensors", {"weight": np.array(FIRST)})
    write_checkpoint(folder / "second.safetensors", {"weight": np.array(SECOND)})
    train_run(folder / "run", epochs=3)
    return folder


@pytest.fixture
def typed(folder, tmp_path, monkeypatch):
    """Types a command in the folder; returns the landscape that it wrote."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def run(*arguments, function="bowl", size=5):
        output = tmp_path / f"{len(list(tmp_path.iterdir()))}.h5"
        fixed = ["--function", f"evaluate_callbacks:{function}", "-o", output, "--size", size, "--quiet"]
        assert str(output) in invoke("evaluate", *arguments, *fixed, "--devices", "0").stdout
        return Landscape.load(output)

    return run


def same(found, plane, callback_fn=bowl, **options):
    expected = evaluate(plane, callback_fn, **{"size": 5, "progress": False, "device_ids": [0], **options})
    assert found.attributes["identity"] == expected.attributes["identity"]
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-6)
    assert found.origin.name == expected.origin.name
    if expected.checkpoints is not None:
        assert found.checkpoints.name == expected.checkpoints.name
        assert list(found.checkpoints.runs) == list(expected.checkpoints.runs)


@OBLIQUE
def test_around_the_network_that_the_function_returns(typed):
    network = bowl()[1]
    found = typed("--normalization", "none", "--perturb-one-dimensional", "--seed", "3")
    same(found, random_plane(network, seed=3, normalization="none", perturb_one_dimensional=True), seed=3)


@OBLIQUE
def test_around_a_file_with_a_name(typed, folder):
    moves = ["--normalization", "layer", "--perturb-one-dimensional"]
    plane = random_plane(
        folder / "start.safetensors", network=bowl()[1], normalization="layer", perturb_one_dimensional=True, name="SGD"
    )
    same(typed("SGD=start.safetensors", *moves), plane)
    line = random_line(
        folder / "fourth.pt", network=bowl()[1], normalization="layer", perturb_one_dimensional=True, seed=2
    )
    same(typed("fourth.pt", "--kind", "random-line", "--seed", "2", *moves, size=7), line, size=7, seed=2)


def test_a_line_between_two_networks(typed, folder):
    found = typed("start.safetensors", "Adam=target.safetensors")
    plane = line_between(
        {"start": folder / "start.safetensors", "Adam": folder / "target.safetensors"}, network=bowl()[1]
    )
    same(found, plane)
    # By definition the target is where the loss is zero.
    assert found.loss[np.argmin(abs(found.x - 1))] < found.loss[0]
    same(
        typed("start.safetensors", "fourth.pt"),
        line_between(folder / "start.safetensors", folder / "fourth.pt", network=bowl()[1]),
    )


def test_a_plane_through_three_networks(typed, folder):
    files = [folder / f"{name}.safetensors" for name in ("start", "target", "third")]
    found = typed(*files, "--kind", "through", size="4x6")
    same(found, plane_through(*files, network=bowl()[1]), size=(4, 6))
    assert found.loss.shape == (6, 4)
    named = typed("a=start.safetensors", "b=target.safetensors", "c=third.safetensors", "--kind", "through")
    assert list(named.checkpoints.name) == ["a", "b", "c"]


def test_directions_of_ones_own(typed, folder):
    found = typed(
        "--directions", "first.safetensors", "--directions", "second.safetensors", "--save-directions", size=3
    )
    expected = [[bowl_loss(x, y, FIRST, SECOND) for x in found.x] for y in found.y]
    np.testing.assert_allclose(found.loss, expected, rtol=1e-9)
    # What --save-directions wrote can be read.
    kept = found.path.with_name(f"{found.path.stem}_directions.safetensors")
    np.testing.assert_allclose(typed("--directions", kept, size=3).loss, expected, rtol=1e-9)
    same(typed(kept, "--kind", "saved", size=3), Plane.load(kept), size=3)
    line = typed("start.safetensors", "--kind", "own", "--directions", "first.safetensors", size=3)
    assert line.y is None


def test_directions_that_are_read_are_not_replaced(typed, folder):
    found = typed("--directions", "first.safetensors", "--save-directions", size=3)
    kept = found.path.with_name(f"{found.path.stem}_directions.safetensors")
    before = kept.read_bytes()
    again = ("start.safetensors", "--directions", kept, "--save-directions", "-o", found.path, "--overwrite")
    with pytest.raises(LandscapeWriteError, match=r"^--output must not be one of the inputs, but .*_directions\.saf"):
        invoke("evaluate", *again, "--function", "evaluate_callbacks:bowl", "--size", "3", "--devices", "0", "--quiet")
    assert kept.read_bytes() == before


def test_a_folder_may_have_an_equals_sign_in_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1").mkdir()
    assert TypedCheckpoint.read("lr=0.1@20") == TypedCheckpoint("", "lr=0.1", 20)
    assert TypedCheckpoint.read("slow=lr=0.1@20") == TypedCheckpoint("slow", "lr=0.1", 20)
    assert TypedCheckpoint.read("lr=other@20") == TypedCheckpoint("lr", "other", 20)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["run", "files", "numbers"])
def test_pca_of_a_run_or_of_files(typed, folder, form):
    run = RunDirectory(folder / "run")
    network = batch_norm()[1]
    files = [str(run.checkpoint_path(number)) for number in (0, 1, 2, 3)]
    if form == "run":
        found, plane = typed("run", "--kind", "pca", function="batch_norm", size=3), pca_plane(run, network=network)
    elif form == "files":
        found = typed(*files, "--kind", "pca", "--numbers", "0,1,2,3", "--centering", "mean", function="batch_norm",
                      size=3)  # fmt: skip
        plane = pca_plane(files, network=network, numbers=[0, 1, 2, 3], centering="mean")
    else:
        found = typed("run@1", "run@2", "run@3", "--kind", "pca", function="batch_norm", size=3)
        plane = pca_plane([run.checkpoint(number) for number in (1, 2, 3)], network=network)
    same(found, plane, batch_norm, size=3)


@pytest.mark.slow
def test_pca_of_several_runs(typed, folder):
    run = RunDirectory(folder / "run")
    files = [str(run.checkpoint_path(number)) for number in (1, 2)]
    found = typed(
        "A=run", f"B={files[0]}", f"B={files[1]}", "--kind", "pca", "--numbers", "B=10,20", function="batch_norm",
        size=3,
    )  # fmt: skip
    plane = pca_plane({"A": run, "B": files}, network=batch_norm()[1], numbers={"B": [10, 20]})
    same(found, plane, batch_norm, size=3)
    assert list(found.checkpoints.number) == [0, 1, 2, 3, 10, 20]


@pytest.mark.slow
def test_a_run_is_its_last_checkpoint(typed, folder):
    run = RunDirectory(folder / "run")
    found = typed("early=run@1", "late=run", function="batch_norm", size=3)
    ends = {"early": run.checkpoint(1), "late": run.checkpoint(3)}
    same(found, line_between(ends, network=batch_norm()[1]), batch_norm, size=3)


@pytest.mark.slow
def test_runs_and_folders_of_weights_behind_urls(typed, folder):
    run = RunDirectory(folder / "run")
    with empty_memory() as system:
        system.put(str(folder / "run" / "ckpt_dir"), "/bucket/run/ckpt_dir", recursive=True)
        system.put_file(str(run.checkpoint_path(3)), "/bucket/last/model.safetensors")
        found = typed("early=memory://bucket/run@1", "late=memory://bucket/last", function="batch_norm", size=3)
    ends = {"early": run.checkpoint(1), "late": run.checkpoint(3)}
    line = line_between(ends, network=batch_norm()[1])
    expected = evaluate(line, batch_norm, size=3, progress=False, device_ids=[0])
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-6)


@pytest.mark.slow
@OBLIQUE
def test_around_a_checkpoint_of_a_run_which_has_its_name(typed, folder):
    run = RunDirectory(folder / "run")
    found = typed("run@2", function="batch_norm", size=3)
    same(found, random_plane(run.checkpoint(2), network=batch_norm()[1], name="run@2"), batch_norm, size=3)
    assert "weights without a name" not in summary_text(found)


def test_the_function_is_called_once(typed, folder):
    import evaluate_callbacks

    evaluate_callbacks.calls.clear()
    typed("start.safetensors", "target.safetensors", function="counted")
    assert evaluate_callbacks.calls == [1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("a b c", r"^--kind is missing: 3 checkpoints may be a run's \(--kind pca\) or three networks \(--kind"),
        ("a b --kind random", "^--kind random needs one checkpoint or none, but got 2"),
        ("a --kind through", "^--kind through needs three checkpoints, but got 1"),
        ("a --kind ring", "^--kind must be one of 'auto', 'random', 'random-line', 'line', 'through', 'pca', 's"),
        ("=start.safetensors", "^CHECKPOINTS must be a file, RUN_DIR@NUMBER or NAME=FILE, but got '=start"),
        ("start.safetensors missing.pt", r"missing\.pt"),
        ("x=start.safetensors x=third.safetensors", "^CHECKPOINTS must have different names, but got x, x"),
        (
            "start.safetensors third.safetensors --normalization layer",
            "^--normalization must be left out for --kind line; it belongs to --kind random or --kind random-line or",
        ),
        ("start.safetensors --centering mean", "^--centering must be left out for --kind random; it belongs to"),
        ("start.safetensors --size 4x", "^--size must be a number such as 40, or two such as 40x20"),
        ("a=start.safetensors third.safetensors --size 2", "^--size must be an int of at least 3, but got 2"),
        ("start.safetensors --normalization all", "^--normalization must be one of 'filter', 'layer', 'weight'"),
        ("--kind own", "^--directions is missing: --kind own needs"),
        ("--directions first.safetensors --directions first.safetensors", "parallel"),
        ("--function evaluate_callbacks:nothing", "must return .model, network, dataset, metrics. or an Evaluator"),
        (
            "run@last --function evaluate_callbacks:batch_norm",
            "CHECKPOINTS must be RUN_DIR@NUMBER, whose number is an epoch or a step such as run@20, .* but got 'run@l",
        ),
        ("run@9 --function evaluate_callbacks:batch_norm", "has no checkpoint of epoch 9; it has"),
        ("a=run start.safetensors --kind pca", "^CHECKPOINTS must have NAME= in front of each"),
        ("start.safetensors", "the random direction is zero.*Pass --perturb-one-dimensional to move biases"),
    ],
)
def test_wrong_arguments(folder, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    function = "" if "--function" in arguments else " --function evaluate_callbacks:bowl"
    with pytest.raises(Exception, match=text):
        invoke("evaluate", *f"{arguments}{function}".split(), "-o", tmp_path / "a.h5", "--quiet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_on_two_workers_as_a_user_types_it(folder, tmp_path):
    arguments = ["SGD=start.safetensors", "Adam=target.safetensors", "--function", "evaluate_callbacks:bowl"]
    how = ["--devices", "0,1", "-o", tmp_path / "line.h5", "--size", "9"]
    told = command("evaluate", *arguments, *how, folder=folder)
    assert "line.h5\n  Landscape(" in told.stdout
    assert "\r" not in told.stderr
    (forecast,) = re.findall(r"line: (\d+) points x .* \((\d+) of the grid, (\d+) losses of checkpoints\)", told.stderr)
    assert forecast == ("11", "9", "2"), "what is at the origin of the line is measured once"
    assert "line: 11/11 points (100 %)" in told.stderr
    assert Landscape.load(tmp_path / "line.h5").complete


@pytest.mark.filterwarnings("always:device_ids")
def test_each_warning_is_shown_once(folder, tmp_path):
    """The plane's pool says the same as that of its points."""
    arguments = ["start.safetensors", "--function", "evaluate_callbacks:bowl", "--kind", "hessian", "--which", "top"]
    how = ["--devices", 10**6, "-o", tmp_path / "top.h5", "--size", "3", "--quiet"]
    told = command("evaluate", *arguments, *how, folder=folder, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert told.stderr.count("warning: --devices [1000000] go beyond this machine") == 1


@pytest.mark.parametrize(
    ("function", "text", "place"),
    [
        ("raising", "callback_fn raised KeyError: 'x' ({file}, line 16)", "in raising"),
        pytest.param(
            "damaged",
            "what callback_fn returned raised OSError: row 0 is damaged ({file}, line 23)",
            "in __getitem__",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_error_of_the_users_code_is_one_text_and_debug_shows_where(folder, tmp_path, function, text, place):
    arguments = ["evaluate", "--function", f"evaluate_callbacks:{function}", "--devices", "0,1", "-o", "a.h5"]
    text = f"error: {text}".format(file=folder / "evaluate_callbacks.py")
    for debug in ([], ["--debug"]):
        told = command(*debug, *arguments, "--size", "3", "--quiet", folder=folder, check=False)
        assert told.returncode == 1
        assert told.stderr.splitlines()[-1] == text
        assert told.stderr.count(place) == len(debug)
        if not debug:
            assert told.stderr == f"{text}\n"


def test_eigenvectors_are_searched_with_the_same_workers_and_within_the_same_budget(folder, tmp_path, monkeypatch):
    asked = {}
    for name in ("hessian_plane", "evaluate"):
        real = getattr(functions, name)

        def spy(*args, real=real, name=name, **options):
            asked[name] = options
            return real(*args, **options)

        monkeypatch.setattr(functions, name, spy)
    monkeypatch.chdir(folder)
    given = {"--sample-memory": "1GB", "--workers-per-device": "1", "--devices-per-worker": "1", "--budget": "1h"}
    arguments = ["start.safetensors", "--function", "evaluate_callbacks:bowl", "--kind", "hessian", "--which", "top"]
    more = [text for pair in given.items() for text in pair]
    told = invoke("evaluate", *arguments, *more, "--devices", "0", "-o", tmp_path / "a.h5", "--size", "3", "--quiet")
    assert told.exit_code == 0, told.output
    names = ("sample_memory", "workers_per_device", "devices_per_worker", "device_ids", "plan")
    assert [asked["hessian_plane"][name] for name in names] == [asked["evaluate"][name] for name in names]
    assert 3000 < asked["evaluate"]["budget"] < 3600
