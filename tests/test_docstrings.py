"""Whoever uses a public name, or implements a contract, finds its text; ruff asks for none inside."""

import inspect
from importlib import import_module

import pytest

DOORS = {
    "collectors": (),
    "collectors.run_directory": ("RunDirectory",),
    "workers": (),
    "landscape": (),
    "landscape.functions": (
        "measure_points",
        "refine",
        "widen",
        "measure_curvature",
        "trace_by_lines",
        "hessian_plane",
        "barrier",
        "connect",
        "compare",
    ),
    "landscape.paths.alignment": ("Aligned", "align"),
    "landscape.paths.barrier": ("Barrier",),
    "landscape.paths.path": ("Path",),
    "landscape.diagnosis.diagnosis": ("ComparedLoss", "Diagnosis", "Fact", "Finding"),
    "landscape.report.report": ("Report",),
    "landscape.report.statement": ("Answer", "Number", "Statement"),
    "landscape.trackers": ("log_to_mlflow", "log_to_tensorboard", "log_to_wandb"),
    "landscape.planes": ("Network", "Plane", "ProjectedCheckpoints"),
    "landscape.figures": (),
    "landscape.interactive": (),
    "landscape.exchange": ("export_landscape", "import_landscape"),
    # The contracts.
    "collectors.networks.readers": ("NetworkReader",),
    "collectors.weights.safetensors_file": ("StateReader", "write_checkpoint"),
    "workers.curvature.products": ("ShareProducts",),
    "workers.evaluator": ("Evaluator", "MakesProducts", "FitsCurves", "OriginMeasurement", "Partition"),
    "workers.pool": ("Pool",),
    "landscape.record.driver": ("Experiment",),
}
PUBLIC = [(door, name) for door, names in DOORS.items() for name in names or import_module(door).__all__]


def members(item):
    """Returns what a class of ours, or one it inherits from, shows its users."""
    ours = [
        base for base in inspect.getmro(item) if base.__module__.split(".")[0] in ("collectors", "workers", "landscape")
    ]
    names = {
        name for base in ours for name, value in vars(base).items() if callable(value) or isinstance(value, property)
    }
    return sorted(name for name in names if not name.startswith("_"))


@pytest.mark.parametrize(("door", "name"), PUBLIC)
def test_a_public_name_has_its_text(door, name):
    item = getattr(import_module(door), name)
    if not callable(item):
        return
    text = inspect.getdoc(item)
    assert text
    assert not text.startswith(f"{name}("), "made of the signature by dataclass"
    if inspect.isclass(item):
        missing = [member for member in members(item) if not inspect.getdoc(getattr(item, member))]
        assert not missing
