"""What is tried with faults: each play writes files, and knows what must be there whatever fails."""

import functools
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

Forked = Callable[[Callable[[], Any]], dict[str, Any]]


class Play:
    """A play; its methods run in forked processes, so that none sees what another one left in memory.

    ``also``: errors that are documented beside ``LandscapeError``.
    """

    also: tuple[type[BaseException], ...] = ()

    def __init__(self, folder):
        self.base, self.warm = folder / "base", folder / "warm"
        self.expected = folder / "expected"

    def begin(self, forked):
        """Makes what is there before, and what an undisturbed play leaves."""
        self.load()
        self.base.mkdir()
        # What is imported late is imported now, rather than in each of the forked processes.
        self.warm.mkdir()
        self.make_base(self.warm)
        self.act(self.warm)
        for work in (lambda: self.make_base(self.base), self.rehearse):
            done = forked(work)
            assert "done" in done, done

    def rehearse(self):
        self.prepare(self.expected)
        self.act(self.expected)

    def load(self):
        """Imports what the play would import."""

    def make_base(self, base):
        """Writes what is there before."""

    def prepare(self, place):
        """Makes the place of a trial as it is before."""
        shutil.copytree(self.base, place)

    def act(self, place):
        raise NotImplementedError

    def check(self, place, report):
        """Returns what is wrong afterwards, or None."""
        raise NotImplementedError


class Training(Play):
    """Checkpoints and their metadata, by a collector around a hand-written loop."""

    existing = "error"
    was_there = False
    first_epoch = 0
    records: ClassVar[dict[str, Any]] = {}

    def load(self):
        import runs  # noqa: F401
        import torch

        import collectors.run_directory.writer as writer

        torch.set_num_threads(1)
        # At once, not after a second: then metadata and checkpoints alternate.
        writer.METADATA_INTERVAL_SECONDS = 0.0

    def make_base(self, base):
        if self.was_there:
            import runs

            self.train(base, "error", 0, runs.seeded(runs.SmallNetwork, seed=3))

    def act(self, place):
        self.train(place, self.existing, self.first_epoch)

    def train(self, place, existing, first_epoch, network=None):
        import runs

        from collectors import SummaryCollector

        network = runs.seeded(runs.SmallNetwork) if network is None else network
        landscape = {"intervals": [(0, 5, 7)]}
        collector = SummaryCollector(
            place / "run", keep_default_action=False, collect_landscape=landscape, existing=existing, **self.records
        )
        with collector.watch(network, start_epoch=first_epoch, start_step=4 * first_epoch) as run:
            runs.train(network, run, 2 - first_epoch, first_step=4 * first_epoch)

    def check(self, place, report):
        folder = place / "run" / "ckpt_dir"
        metadata = (folder / "train_metadata.json").exists()
        self.check_whole(place / "run", metadata)
        if not report.keys() & {"error", "killed"}:
            return differences(self.expected, place)
        if not metadata and self.existing == "resume":
            return "the metadata of the run is gone"
        # What the user is told to do.
        self.train(place, "resume" if self.existing == "resume" else "overwrite", self.first_epoch)
        return differences(self.expected, place)

    def check_whole(self, run, metadata):
        from collectors.run_directory import RunDirectory
        from collectors.weights.safetensors_file import CheckpointFile, file_sha256

        for file in (run / "ckpt_dir").glob("[!.]*.safetensors"):
            CheckpointFile(file)
        if metadata:
            found = RunDirectory(run)
            for number, name in found.metadata.files.items():
                assert file_sha256(run / "ckpt_dir" / name) == found.metadata.sha256[number], name
                found.checkpoint(number)


class Resuming(Training):
    existing, was_there, first_epoch = "resume", True, 1


class Overwriting(Training):
    existing, was_there = "overwrite", True


class Refused(Training):
    """A run is there, and the training may not touch it."""

    was_there = True

    def act(self, place):
        from collectors.errors import RunDirectoryError

        try:
            self.train(place, "error", 0)
        except RunDirectoryError as error:
            if "already holds a run" not in str(error):
                raise

    def check(self, place, report):
        return differences(self.base, place)


class Recording(Training):
    """Records beside the checkpoints; what is written of them can be read to its end."""

    existing, was_there = "overwrite", True
    also = (PermissionError,)  # the directory cannot be written, as far as the system answers
    records: ClassVar = {
        "collect_freq": 4, "collect_specified_data": {"collect_metric": True, "collect_train_lineage": True},
    }  # fmt: skip

    def check(self, place, report):
        import event_reading

        folder = place / "run" / "ckpt_dir"
        self.check_whole(place / "run", (folder / "train_metadata.json").exists())
        if (place / "run").exists():
            event_reading.events(place / "run")
        if report.keys() & {"error", "killed"}:
            self.train(place, "overwrite", 0)
        elif any("nothing is recorded" in text for text in report["warned"]):
            return None  # records never end a training
        return None if event_reading.scalars(place / "run", "loss/auto") else "there are no records"


class ImportedCheckpoints(Training):
    """A run directory that is built from the files of another program, in the place of an older one."""

    def make_base(self, base):
        import runs
        import torch

        for number in range(3):
            torch.save(runs.seeded(runs.SmallNetwork, seed=number).state_dict(), base / f"{'abc'[number]}.pt")
        self.import_files(base, reversed(range(3)))

    def act(self, place):
        self.import_files(place, range(3))

    def import_files(self, place, order):
        from collectors import import_checkpoints

        files = [place / f"{'abc'[number]}.pt" for number in order]
        import_checkpoints(place / "run", files, numbers=(1, 2, 3), existing="overwrite")

    def check(self, place, report):
        self.check_whole(place / "run", (place / "run" / "ckpt_dir" / "train_metadata.json").exists())
        if report.keys() & {"error", "killed"}:
            self.act(place)
        return differences(self.expected, place)


class Checkpoints(Play):
    """The whole state of a training, by ModelCheckpoint, which deletes the old when the new is there."""

    also = (PermissionError,)  # the directory cannot be written, as far as the system answers

    def act(self, place):
        self.train(place, None)

    def train(self, place, resume_from):
        import runs
        import torch

        from collectors import CheckpointConfig, Model, ModelCheckpoint

        network = runs.seeded(runs.SmallNetwork)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        model = Model(network, torch.nn.CrossEntropyLoss(), optimizer)
        config = CheckpointConfig(2, keep_checkpoint_max=2)
        model.train(2, runs.batches(), [ModelCheckpoint("run", place / "run", config)], resume_from=resume_from)
        return runs.snapshot(network)

    def check(self, place, report):
        import torch

        from collectors.model_checkpoint.checkpoint_file import latest_checkpoint
        from collectors.weights.safetensors_file import CheckpointFile

        files = [CheckpointFile(file) for file in (place / "run").glob("[!.]*.safetensors")]
        undisturbed = self.train(place / "again", None)
        latest = latest_checkpoint(place / "run", "run") if files else None
        if not report.keys() & {"error", "killed"} and (latest is None or "2_4" not in latest.name):
            return "the last step is not saved"
        resumed = self.train(place, latest)
        same = all(torch.equal(resumed[name], undisturbed[name]) for name in undisturbed)
        return None if same else "the resumed training ends elsewhere"


class Survey(Play):
    """A landscape file that grows while it is measured."""

    def load(self):
        import landscape.record.driver as driver
        from landscape.record.writer import FileWriter

        def prompt_writer(path, data, format):
            return FileWriter(path, data, replace(format, flush_seconds=0.0))

        driver.FileWriter = prompt_writer  # type: ignore[misc,assignment]

    def act(self, place):
        import numpy as np

        from landscape import evaluate
        from landscape.planes import custom_plane
        from workers import FunctionEvaluator

        def evaluator():
            return FunctionEvaluator(lambda weights: float(np.square(weights["place"]).sum()), {"place": np.zeros(2)})

        axes = [{"place": np.array([1.0, 0.0])}, {"place": np.array([0.0, 1.0])}]
        plane = custom_plane({"place": np.zeros(2)}, axes, network=evaluator().description.space)
        grid = np.linspace(-1.5, 2, 4)
        output = place / "landscape.h5"
        evaluate(plane, evaluator, x=grid, y=grid, output=output, progress=False, device_ids=[0])

    def check(self, place, report):
        from landscape import Landscape

        if (place / "landscape.h5").exists():
            Landscape.load(place / "landscape.h5")
        elif not report.keys() & {"error", "killed"}:
            return "there is no file"
        self.act(place)
        return differences(self.expected, place)


class Replacing(Play):
    """Files that take the places of others."""

    def __init__(self, folder, write):
        super().__init__(folder)
        self.write = write

    def make_base(self, base):
        self.write(base, 1)

    def act(self, place):
        self.write(place, 2)

    def check(self, place, report):
        """Each file is the old one or the new one, and nothing is beside them but a lock that nobody holds."""
        old, new, found = contents(self.base), contents(self.expected), contents(place)
        found = {name: content for name, content in found.items() if not name.endswith(".lock")}
        if not report.keys() & {"error", "killed"}:
            return None if found == new else f"it went well, but differs in {unequal(new, found)}"
        wrong = [name for name in new.keys() | old.keys() if found.get(name) not in (old.get(name), new.get(name))]
        if wrong:
            return f"neither old nor new: {wrong}"
        return None if "killed" in report or found.keys() == new.keys() else f"{unequal(new, found)} left behind"


def example(seed):
    """Returns a square plane that every format takes."""
    import landscape_examples
    import numpy as np

    from landscape.record.checks import PointStatus

    random = np.random.default_rng(seed)
    data = landscape_examples.build(4, 4, seed=seed)
    for values in data.metrics.values():
        values[...] = random.random(data.shape)
    data.status[...] = PointStatus.MEASURED
    for values in data.checkpoints.projected.values():
        values[...] = random.random(len(values))
    # The time of an export that does not say when it was measured is the present one.
    data.attributes = {**data.attributes, "created": "2020-09-13T12:26:40+00:00"}
    return data


def export(format, name):
    def write(place, seed):
        from landscape.exchange.exchange import export_landscape

        export_landscape(example(seed), place / name, format, overwrite=True)

    return write


def page(place, seed):
    from landscape.interactive.page import save_page

    save_page(example(seed), place / "page.html", size="small")


@functools.cache
def drawn(seed):
    """Returns a figure that is quickly drawn: what is in it changes no call."""
    from matplotlib.figure import Figure

    figure = Figure((2, 2))
    figure.text(0.1, 0.5, f"figure {seed}")
    return figure


def figure(place, seed):
    from landscape.drawing.canvas import save_figure

    for kind in ("png", "svg"):
        save_figure(drawn(seed), place / f"figure.{kind}", dpi=30)


def animation(suffix):
    def write(place, seed):
        from landscape.figures.films.film import save_animation

        save_animation(example(seed), place / f"walk{suffix}", seconds=0.1, rate=20, dpi=20)

    return write


def imported(place, seed):
    from landscape.exchange.exchange import export_landscape, import_landscape
    from landscape.grid.landscape_file import save_landscape

    for number in (1, 2) if seed == 1 else ():
        export_landscape(example(number), place / f"surface_{number}.h5", "li")
    save_landscape(place / "landscape.h5", import_landscape(place / f"surface_{seed}.h5"), overwrite=True)


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def unequal(one, other):
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def differences(expected, found):
    """Returns how two folders differ, in names and bytes, but for locks that nobody holds; None if they do not."""
    names = [name for name in unequal(contents(expected), contents(found)) if not name.endswith(".lock")]
    return f"it differs from an undisturbed one in {names}" if names else None


def replacing(write):
    return lambda folder: Replacing(folder, write)


EXPORTS = {
    "csv": "out.csv", "npz": "out.npz", "netcdf": "out.nc", "vtk": "out.vts", "li": "out.h5", "landscaper": "out.npz",
    "mindinsight": "events.summary.1",
}  # fmt: skip
PLAYS = {
    "train": Training, "resume": Resuming, "overwrite": Overwriting, "refused": Refused, "checkpoints": Checkpoints,
    "survey": Survey, "records": Recording,
    "page": replacing(page), "figure": replacing(figure), "gif": replacing(animation(".gif")),
    "mp4": replacing(animation(".mp4")), "import": replacing(imported), "import checkpoints": ImportedCheckpoints,
    **{format: replacing(export(format, name)) for format, name in EXPORTS.items()},
}  # fmt: skip
# Plays of a process, which load the same libraries.
TOGETHER = {
    "trainings": ("train", "resume", "overwrite", "refused", "checkpoints", "records", "import checkpoints"),
    "landscapes": ("survey", "import", *EXPORTS),
    "pictures": ("page", "figure", "gif", "mp4"),
}
