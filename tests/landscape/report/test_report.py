"""The report of a run: its page, its files, its command, and what it refuses."""

import json
import re
from html.parser import HTMLParser

import pytest
from command_line import command, invoke
from planted_runs import Point, bowl, moves, spiral, train

from collectors.errors import CheckpointError
from collectors.run_directory.directory import RunDirectory
from landscape import Landscape, SummaryLandscape
from landscape.errors import LandscapeWriteError
from landscape.record.option_kinds import ReportOptions
from landscape.record.options import with_defaults
from landscape.record.run import Cost, Run
from landscape.report.measuring import Findings, ReportMeasuring
from landscape.report.report import report_html
from workers.errors import CurvatureError

pytestmark = pytest.mark.filterwarnings("ignore:num_samples is", "ignore:the two random directions have a cosine")
SETS = {"train": moves(200, 4), "test": moves(100, 4, shift=0.4, seed=1)}
TYPED = ("--function", f"{__name__}:callback_fn", "--devices", 0)


def callback_fn():
    return bowl(1, 2, 3, 4), Point(4), SETS, {}


def report_of(run, recipes=None, **options):
    return SummaryLandscape(run).report(callback_fn, recipes, **{"device_ids": [0], "progress": False, **options})


@pytest.fixture
def run(tmp_path):
    return train(tmp_path / "run", spiral(4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    train(folder / "run", spiral(4))
    return folder


@pytest.fixture(scope="module")
def said(folder):
    return command("report", "run", *TYPED, "--quiet", folder=folder)


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def page(said, folder):
    return Page((folder / "run/report.html").read_text())


def test_the_command_says_each_answer_with_its_sentences(said):
    minimum = "A minimum on these 200 samples: the loss bends up in every direction of its 4 trainable weights.\n"
    assert minimum in said.stdout
    assert "The plane shows the path: it holds 100.0 % of its variance.\n" in said.stdout
    assert "What is not known\n" in said.stdout
    assert "1 of the 4 eigenvalues: the 2 largest ones and the lowest one were measured. " in said.stdout
    assert re.search(r"\nWith pictures: /.*/run/report.html\n$", said.stdout)


def test_the_page_needs_nothing_else(page):
    (policy,) = [item["content"] for tag, item in page.tags if item.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert not [tag for tag, _ in page.tags if tag == "script"]
    addresses = [item[name] for _, item in page.tags for name in ("src", "href") if name in item]
    assert all(address.startswith(("data:", "#")) for address in addresses)


def test_each_link_leads_to_a_picture_with_a_text(page):
    ids = {item.get("id") for _, item in page.tags}
    links = {item["href"].removeprefix("#") for tag, item in page.tags if tag == "a"}
    assert links <= ids
    assert links == {f"picture-{name}" for name in ("path", "sharpness", "along", "around", "gap")}
    assert all(len(item["alt"]) > 40 for tag, item in page.tags if tag == "img")


def test_the_page_has_all_that_the_command_says(said, page):
    def words(text):
        return re.sub(r"\s+", " ", text)

    shown = words("".join(page.words))
    for line in re.split(r"\n(?=  - )|\n\n", said.stdout)[1:-1]:
        if line.startswith("  - "):
            assert words(line.removeprefix("  - ")).strip() in shown


@pytest.mark.slow
def test_a_second_call_measures_nothing_and_says_the_same(said, folder):
    again = command("report", "run", *TYPED, "--json", folder=folder)
    facts = json.loads(again.stdout)
    assert again.stderr.count(": 0 points x") == 1
    assert facts["report_version"] == 1
    assert [answer["name"] for answer in facts["answers"]] == ["path", "end", "flatness", "gap"]
    number = facts["answers"][1]["statements"][2]["number"]
    assert number["file"] == "report_end_12.h5"
    assert number["arrays"] == {"values": "eigenvalues", "residuals": "residuals"}
    assert (number["formula"], number["low_formula"]) == ("values[0, -1]", "values[0, -1] - residuals[0, -1]")
    for answer in facts["answers"]:
        for statement in answer["statements"]:
            assert statement["text"] in re.sub(r"\n    |\n  - ", " ", said.stdout)


def test_the_landscapes_can_be_read_like_all_others(said, folder):
    assert Landscape.load(folder / "run/report_0-12_pca.h5").complete
    assert Landscape.load(folder / "run/report_12_random.h5").complete


@pytest.mark.slow
def test_a_dry_run_writes_nothing_and_forecasts_all_parts(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Run, "is_late", True)
    recipes = {"a": [run], "b": [train(tmp_path / "other", spiral(4, end=1.0))]}
    before = sorted(tmp_path.rglob("*"))
    assert report_of(run, recipes, dry_run=True, progress=True) is None
    assert sorted(tmp_path.rglob("*")) == before
    said = capsys.readouterr().out
    for file in ("0-12_pca", "12_random", "end_12", "along_0-12", "comparison"):
        assert f"report_{file}.h5: " in said
    assert "products" in said
    assert re.search(r"\nreport in all: about .*; beside it the start of each part and three points", said)


@pytest.mark.parametrize(
    ("budget", "costs", "missing", "expected"),
    [
        (None, [(1, 3), (2, 2)], {}, "about 5 s (adaptive sampling: from 3 s upwards)"),
        (4, [(1, 3), (2, 2)], {}, "about 5 s (adaptive sampling: from 3 s upwards); the budget ends it after 4 s"),
        (None, [(54.8, 55.0)], {}, "about 55 s"),
        (5, [(2, 2), (2, 2)], {"left_out": "epochs [3]"}, "about 4 s"),
        (None, [(0, 0)], {"end": "no products"}, "nothing is left to measure; without end: no products"),
    ],
)
def test_a_dry_run_says_the_total_of_its_parts(run, budget, costs, missing, expected):
    options = with_defaults("report", ReportOptions, {"budget": budget, "dry_run": True})
    measuring = ReportMeasuring(SummaryLandscape(run), RunDirectory(run), callback_fn, run, options, dict(missing))
    text = measuring.total([Cost.of("", least, most) for least, most in costs])
    line = "" if "end" in missing else " and three points along the lowest eigenvector"
    assert text == f"report in all: {expected}; beside it the start of each part{line}"
    (run / "report_bottom_12.h5").touch()
    assert "three points" not in measuring.total([])


@pytest.mark.slow
def test_all_samples_of_one_set_and_some_of_another(run):
    report_of(run, num_samples={"train": 50, "test": None})
    sets = Landscape.load(run / "report_0-12_pca.h5").attributes["datasets"]
    assert {item["name"]: item["num_samples"] for item in sets} == {"train": 50, "test": 100}


@pytest.mark.slow
def test_a_page_of_yours_is_not_replaced(run):
    (run / "report.html").write_text("<p>mine</p>")
    with pytest.raises(
        LandscapeWriteError, match=r"report.html is there and is no report; it was left as it is.*name="
    ):
        report_of(run, overwrite=True)
    assert (run / "report.html").read_text() == "<p>mine</p>"
    assert not list(run.glob("*.h5"))
    with pytest.raises(LandscapeWriteError, match=r"or give another --name"):
        invoke("report", run, *TYPED)
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    with pytest.raises(LandscapeWriteError, match=r"report.html is a directory.*name="):
        report_of(run)


@pytest.mark.slow
def test_the_report_of_another_run_is_not_replaced(run, tmp_path):
    parts = dict.fromkeys(("path", "around", "curvature", "along", "bottom", "comparison"))
    page = tmp_path / "report.html"
    own, text = (report_html(name, [], [], Findings(**parts, missing={})) for name in ("run", "a run < the other"))
    page.write_text(text)
    with pytest.raises(LandscapeWriteError, match=r"html is the report of another run; it was left as it is.*name="):
        report_of(run, output=tmp_path)
    assert page.read_text() == text
    assert report_of(run, output=tmp_path, overwrite=True, dry_run=True) is None
    page.write_text(own)
    assert report_of(run, output=tmp_path, dry_run=True) is None


@pytest.mark.slow
def test_unknown_options_are_refused(run):
    with pytest.raises(TypeError, match=r"SummaryLandscape.report\(\) got an unexpected keyword argument 'tolerance'"):
        report_of(run, tolerance=0.1)


@pytest.mark.slow
def test_a_mistake_in_the_recipes_shows_before_anything_is_measured(run, tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        report_of(run, {"a": [tmp_path / "nowhere"], "b": [run]})
    with pytest.raises(ValueError, match="recipes must be"):
        report_of(run, {"a": [run]})
    assert not list(run.glob("*.h5"))


def test_commands_that_the_page_names_work(said, folder):
    text = re.sub(r"\n    ", " ", said.stdout)
    (density,) = re.findall(r"landscape (curvature .* --name density)", text)
    (other,) = re.findall(r"landscape (run .* --name seed1)", text)
    for typed in (density, other):
        command(*typed.split(), "--devices", 0, "--quiet", folder=folder)
    assert (folder / "run/seed1_12_random.h5").exists()


@pytest.mark.slow
def test_commands_that_the_page_names_measure_as_the_report_did(run, tmp_path):
    folder = tmp_path / "out"
    given = {"num_samples": {"train": 100, "test": 50}, "samples": "random", "seed": 3, "seed_each_point": True}
    unknown = report_of(run, output=folder, name="said", **given).unknown
    shared = f"--samples train=100,test=50 --sample-choice random --seed-each-point --output {folder}"
    density, other, recipes = (text.partition(": landscape ")[2] for text in unknown if ": landscape " in text)
    assert f" {shared} --seed 3 --numbers 12 " in density
    assert f" {shared} --seed 4 --no-train " in other
    assert f" {shared} --seed 3 --name said --recipe " in recipes
    for typed in (density, other):
        command(*typed.split(), "--devices", 0, "--dry-run", folder=tmp_path)


@pytest.mark.slow
def test_what_the_budget_leaves_out_is_said(run, monkeypatch):
    measure = SummaryLandscape.gen_landscapes_with_multi_process

    def measure_until_late(self, *arguments, **options):
        found = measure(self, *arguments, **options)
        monkeypatch.setattr(Run, "is_late", True)
        return found

    monkeypatch.setattr(SummaryLandscape, "gen_landscapes_with_multi_process", measure_until_late)
    report = report_of(run)
    end = next(answer for answer in report.answers if answer.name == "end")
    assert not end.known
    assert "The curvature at the end: the budget ended before it was measured." in report.unknown


@pytest.mark.filterwarnings("ignore:the budget of")
@pytest.mark.slow
def test_a_budget_that_ends_at_once_leaves_all_unknown_and_the_same_call_goes_on(run, monkeypatch):
    with monkeypatch.context() as late:
        late.setattr(Run, "is_late", True)
        report = report_of(run)
    # The ends of the path are measured first.
    assert [answer.known for answer in report.answers] == [True, False, False, True]
    assert report.answers[3].statements[1].text.endswith(", as far as it is known: at 1 of 13 checkpoints.")
    assert "The losses of 12 of 13 checkpoints: the budget ended before. The same call measures them." in report.unknown
    assert "121 of 121 points of the plane of the path are not measured" in report.unknown[0]
    report = report_of(run)
    assert all(answer.known for answer in report.answers)


@pytest.mark.filterwarnings("ignore:the budget of")
@pytest.mark.slow
def test_what_an_earlier_call_measured_is_said_whatever_the_time(run, tmp_path, monkeypatch):
    recipes = {"a": [run], "b": [train(tmp_path / "other", spiral(4, end=1.0))]}
    before = report_of(run, recipes)
    monkeypatch.setattr(Run, "is_late", True)
    again = report_of(run, recipes)
    assert again.to_json() == before.to_json()
    text = "The curvature at the end: the budget ended before it was measured."
    assert text in report_of(run, overwrite=True).unknown


@pytest.mark.slow
def test_where_there_is_no_curvature_its_reason_is_said(run, monkeypatch):
    def fails(self, *_arguments, **_options):
        raise CurvatureError("the operator has no second derivative.")

    monkeypatch.setattr(SummaryLandscape, "gen_curvature", fails)
    report = report_of(run)
    assert "The curvature at the end: the operator has no second derivative." in report.unknown
    assert report.page.exists()


@pytest.mark.slow
def test_output_and_name_say_where_it_goes(run, tmp_path):
    found = report_of(run, output=tmp_path / "elsewhere", name="said")
    assert found.page == tmp_path / "elsewhere/said.html"
    assert {path.name for path in (tmp_path / "elsewhere").glob("*.h5")} >= {"said_0-12_pca.h5", "said_end_12.h5"}
    assert not list(run.glob("*.h5"))
