"""Commands with several uses: what belongs to another use is refused by name, and each use has its output."""

import json
import re
import shutil

import pytest
from command_line import command, invoke
from surfaces import landscape, surface
from two_networks import save_both

from landscape import Landscape
from landscape.summary_json import summary_json

FUNCTION = "--function two_networks:callback_fn"
LOUD_FUNCTION = "loud:callback_fn"
LOUD = """
import two_networks

def callback_fn():
    print("loaded")
    return two_networks.callback_fn()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    landscape(5, 5).save(tmp_path / "a.h5")
    Landscape(surface(None)).save(tmp_path / "line.h5")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    return save_both(tmp_path_factory.mktemp("networks"))


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("a.h5 --no-open", "a.html"),
        ("a.h5 --aspect fill --camera low --no-open", "a.html"),
        ("a.h5 line.h5 -o both.HTML", "both.HTML"),
        ("a.h5 --kind heatmap", "a.png"),
        ("line.h5 --style paper", "line.png"),
        ("a.h5 -o other.svg", "other.svg"),
    ],
)
def test_plot_writes_a_page_or_a_picture(folder, typed, written):
    assert invoke("plot", *typed.split()).output == f"{written}\n"
    begin = (folder / written).read_bytes()[:200]
    assert {".html": b"<!doctype html>", ".png": b"PNG", ".svg": b"<svg"}[
        f".{written.lower()[-4:].strip('.')}"
    ] in begin


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("plot a.h5 -o a.html --colormap cividis",
         "--colormap must be left out for a page; it belongs to pictures, such as --output NAME.png"),
        ("plot a.h5 -o a.html --caption", "--caption must be left out for a page"),
        ("plot a.h5 -o a.html --no-trajectory", "--no-trajectory must be left out for a page"),
        ("plot a.h5 --watch --no-legend", "--no-legend must be left out with --watch"),
        ("plot a.h5 -o a.png --page small",
         "--page must be left out for a picture; it belongs to pages, such as --output NAME.html"),
        ("plot a.h5 -o a.png --open", "--open must be left out for a picture"),
        ("plot a.h5 --port 8123", "--port must be left out without --watch"),
        ("plot a.h5 --watch -o a.html", "--output must be left out with --watch"),
        ("plot a.h5 --watch --page small", "--page must be left out with --watch"),
        ("plot a.h5 line.h5 --watch", "--watch shows one file, but got 2; give one FILE"),
        ("plot s3://bucket/a.h5 --watch", "FILE must be a file of this machine, .* Leave out --watch"),
        ("info a.h5 --devices 0", "--devices must be left out with PATH; it belongs to `landscape info`"),
        ("convert a.h5 --to wandb -o a.csv", "--output must be left out with --to"),
        ("convert a.h5 --to wandb --metric loss", "--metric must be left out with --to"),
        ("convert a.h5 -o a.csv --project p", "--project must be left out without --from or --to"),
        ("convert a.h5 -o b.h5 --from li --format csv", "--format must be left out with --from"),
        ("convert a.h5 --from li --to wandb", "--from and --to must not be given together"),
        ("convert a.h5 -o b.h5 --from ours", "--from must be one of 'auto', 'li', 'landscaper', '"),
        ("convert a.h5 b.h5 -o c.csv", r"without --from or --to, FILE must be one file, but got 2\."),
        ("convert a.pt -o run --from checkpoints --loss x", "--loss must be left out with"),
        ("convert a.h5 -o a.csv --unit step", "--unit must be left out without --from or --to"),
        (f"connect a.pt b.pt {FUNCTION} --bends 2", "--bends must be left out for --kind line, which needs no fitting"),
        (f"connect a.pt b.pt {FUNCTION} --kind bezier --save-directions -o b.h5",
         "--save-directions must be left out for a curve"),
        (f"connect a.pt b.pt {FUNCTION} --kind curve",
         "--kind must be one of 'line', 'bezier', 'polygon', but got 'curve'"),
        (f"evaluate a.pt {FUNCTION} -o b.h5 --kind random --factor 2",
         "--factor and --run are for one landscape file in place of CHECKPOINTS, without --kind"),
        ("evaluate a.h5 line.h5 --factor 2", "--factor and --run are for one landscape file in place of"),
        (f"evaluate a.pt {FUNCTION} -o a.csv",
         r"--output must be the file .*such as a\.h5, .* `landscape convert a\.h5 -o a\.csv` writes it from that"),
        (f"evaluate a.pt {FUNCTION} -o a.png", r"--output must be .* `landscape plot a\.h5 -o a\.png`"),
        (f"evaluate a.pt {FUNCTION} -o a.txt", "--output must be the file of what is measured, such as a"),
        (f"connect a.pt b.pt {FUNCTION} --align -o c.safetensors --dry-run",
         r"--dry-run must be left out with --output c\.safetensors, for which nothing is measured"),
        (f"connect a.pt b.pt {FUNCTION} --align -o c.safetensors --kind bezier",
         "--kind must be left out with --output c"),
        ("merge a.h5 a.h5 -o b.h5", "files must be at least two different landscape files, but got a"),
        ("evaluate a.h5 --factor 2 --which top", "--which must be left out for a landscape file"),
    ],
)  # fmt: skip
def test_what_belongs_to_another_use(folder, typed, text):
    before = sorted(folder.iterdir())
    with pytest.raises(ValueError, match=f"^{text}"):
        invoke(*typed.split())
    assert sorted(folder.iterdir()) == before


def test_evaluate_names_a_file_that_is_not_there(folder):
    with pytest.raises(FileNotFoundError, match=r"^there is no file b\.h5\. Give a checkpoint, or a landscape file"):
        invoke("evaluate", "b.h5", *FUNCTION.split(), "-o", "c.h5")


@pytest.mark.parametrize(
    ("typed", "missing"),
    [
        ("evaluate a.pt -o b.h5", "--function"),
        (f"evaluate a.pt {FUNCTION}", "--output"),
        (f"connect a.pt b.pt {FUNCTION} --kind bezier", "--output"),
        ("convert a.h5", "--output"),
        ("convert a.h5 --from li", "--output"),
        ("convert a.pt --from checkpoints", "--output"),
    ],
)
def test_what_one_use_needs(folder, typed, missing):
    told = command(*typed.split(), folder=folder, check=False)
    assert told.returncode == 2
    assert f"Invalid value for {missing}: it is missing;" in " ".join(told.stderr.replace("│", " ").split())


def test_a_measurement_as_json(networks, tmp_path):
    shutil.copytree(networks, tmp_path, dirs_exist_ok=True)
    (tmp_path / "loud.py").write_text(LOUD)
    typed = f"connect a.pt b.pt --function {LOUD_FUNCTION} --devices 0 --points 3 -o line.h5 --json".split()
    (found,) = json.loads(command(*typed, folder=tmp_path).stdout)
    # The first call says what was new in it.
    assert found == summary_json(Landscape.load(tmp_path / "line.h5")) | {"file": found["file"]}
    dry = json.loads(command(*typed, "--dry-run", "--overwrite", folder=tmp_path).stdout)
    assert list(dry) == ["forecast"]
    assert "loaded" not in dry["forecast"]
    assert re.match(r"line\.h5: \d+ points x ", dry["forecast"][-1])
