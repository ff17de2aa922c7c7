"""Calls that measure a grid: planes and lines, buffers, data sets, samples, sampling, grids that grow, runs."""

import warnings
from pathlib import Path

import door
import networks as net
import numpy as np
from values import of_landscape, of_plane

from landscape import MeasurementPlan, SummaryLandscape

PLAN = MeasurementPlan(batch_size=16, threads=1)
OPTIONS = {"device_ids": [0], "progress": False, "plan": PLAN}
FILE = "landscape.h5"


def measured(plane, callback_fn=net.plain, **options):
    """Returns what a plane and its landscape hold."""
    chosen = {**OPTIONS, "size": (5, 4) if plane.dimension == 2 else 7, "output": FILE, **options}
    landscape = door.evaluate(plane, callback_fn, **chosen)
    found = {"plane": of_plane(plane), "landscape": of_landscape(landscape)}
    for name, losses in landscape.kept_samples.items():
        found[f"samples of {name}"] = [losses.losses(), losses.targets, losses.weights]
    return found


def random(callback_fn=net.plain, **options):
    """Measures a random plane through the network that callback_fn gives."""
    given = {name: options.pop(name) for name in ("normalization", "perturb_one_dimensional") if name in options}
    return measured(door.random_plane(callback_fn()[1], seed=3, **given), callback_fn, **options)


def line(**options):
    return measured(door.line_between(net.normalized(0), net.normalized(1)), net.batch_norm, **options)


def triangle(**options):
    plane = door.plane_through(*(net.normalized(seed) for seed in range(3)))
    return measured(plane, net.batch_norm, **options)


def principal(**options):
    return measured(door.pca_plane(net.path(), **options))


def two_runs():
    return measured(door.pca_plane({"first": net.path(seed=0), "second": net.path(seed=1)}))


def further_networks():
    plane = door.pca_plane(net.path())
    return measured(plane.with_checkpoints({"other": net.path(seed=2)}, {"one": net.trained(3)}))


def own_directions():
    network = net.perceptron()
    directions = [dict(net.perceptron(seed).named_parameters()) for seed in (1, 2)]
    return measured(door.custom_plane(network, directions, normalization="layer"))


def saved_plane():
    """Measures points of a plane that was read back; the networks on it were in memory, and are gone."""
    door.pca_plane(net.path()).save("plane.safetensors")
    plane = door.Plane.load("plane.safetensors")
    return {"plane": of_plane(plane), "points": points(plane, [[0.1, 0.2]])}


def points(plane, places, callback_fn=net.plain, **options):
    return door.measure_points(plane, callback_fn, places, device_ids=[0], plan=PLAN, **options)


def function_line():
    plane = _plane_of_arrays()
    return measured(plane, net.function, plan=None)


def _plane_of_arrays():
    from collectors.networks.weight_space import describe_arrays

    space = describe_arrays(net.ARRAYS)
    return door.random_plane(net.ARRAYS, network=space, seed=1, normalization="none", perturb_one_dimensional=True)


def failing():
    """Measures where the function fails at some points, then again, where it does not."""
    plane = _plane_of_arrays()

    def at_most(limit):
        def measure(weights):
            if weights["slope"][0] < limit:
                raise RuntimeError("too small")
            return net.bowl(weights)

        return lambda: net.function(measure)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = measured(plane, at_most(-1.2), plan=None)
    return {"failed": first, "again": measured(plane, at_most(-9), plan=None)}


def interrupted(sampling="full"):
    """Measures until the user interrupts it, and goes on."""
    plane = _plane_of_arrays()
    options = {"plan": None, "size": (9, 9), "sampling": sampling, "tolerance": 0.05}
    calls = 0

    def measure(weights):
        nonlocal calls
        calls += 1
        if calls == 30:
            raise KeyboardInterrupt
        return net.bowl(weights)

    net.interrupted(lambda: measured(plane, lambda: net.function(measure), **options))
    return measured(plane, net.function, **options)


def larger_grid():
    plane = door.random_plane(net.perceptron(), seed=3)
    measured(plane, x=[-0.5, 0.0, 0.5], y=[-1.0, 1.0])
    return measured(plane, x=[-1.0, -0.5, 0.0, 0.25, 0.5], y=[-1.0, 0.0, 1.0])


def changed(change, first=None, **options):
    """Measures a plane, then on another grid."""
    plane = door.pca_plane(net.path())
    given = dict(first or {})
    chosen = {**OPTIONS, "size": (5, 4), "output": FILE, **given}
    door.evaluate(plane, net.plain, **chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = change(FILE, net.plain, plane=plane, **{**OPTIONS, **options})
    return of_landscape(found)


def of_run(settings=None, build=net.perceptron, callback_fn=net.plain, **options):
    """Trains, and measures the landscapes of the run."""
    folder = net.collect("run", build, **(settings or {}))
    landscapes = SummaryLandscape(folder).gen_landscapes_with_multi_process(callback_fn, **{**OPTIONS, **options})
    return {Path(str(found.path)).name: of_landscape(found) for found in landscapes}


def with_other_run(**options):
    return of_run(also={"other": net.collect("other", seed=1)}, **options)


def with_network():
    from collectors import save_checkpoint

    save_checkpoint(net.trained(2), "final.safetensors")
    return of_run(also={"seed 2": "final.safetensors"})


def of_directory(**options):
    from collectors.run_directory import RunDirectory

    return measured(door.pca_plane(RunDirectory(net.collect("run")), network=net.perceptron(), **options))


CALLS = {
    "random plane": random,
    "random line": lambda: measured(door.random_line(net.perceptron(), seed=3)),
    "random plane, layers": lambda: random(normalization="layer"),
    "random plane, weights": lambda: random(normalization="weight"),
    "random plane, no normalization": lambda: random(normalization="none", perturb_one_dimensional=True),
    "random plane of convolutions": lambda: random(net.convolutional, perturb_one_dimensional=True),
    "random plane of a language model": lambda: random(net.language),
    "random plane in float64": lambda: random(net.double),
    "random plane in bfloat16": lambda: random(net.half),
    "principal plane": principal,
    "principal plane, centred": lambda: principal(centering="mean"),
    "principal plane, numbered": lambda: principal(numbers=[3, 5, 8, 9, 11]),
    "principal plane of two runs": two_runs,
    "principal plane of a directory": of_directory,
    "principal plane of some checkpoints": lambda: of_directory(numbers=[0, 2, 4]),
    "further networks on a plane": further_networks,
    "plane through three networks": lambda: measured(door.plane_through(*(net.trained(seed) for seed in range(3)))),
    "line between two networks": lambda: measured(door.line_between(net.trained(0), net.trained(1))),
    "line between two named networks": lambda: measured(
        door.line_between({"left": net.trained(0), "right": net.trained(1)})
    ),
    "own directions": own_directions,
    "saved plane": saved_plane,
    "kept directions": lambda: random(save_directions=True),
    "margin": lambda: measured(door.pca_plane(net.path()), margin=0.5),
    "limits": lambda: random(limits=[-2, 1, -0.5, 0.5]),
    "own axes": lambda: random(x=[-1.0, 0.0, 0.25], y=[-0.5, 0.5], size=3),
    "buffers, fixed": lambda: line(buffers="fixed"),
    "buffers, recalibrated": lambda: line(buffers="recalibrate"),
    "buffers, recalibrated in small batches": lambda: line(buffers="recalibrate", recalibration_batch_size=7),
    "buffers, between two networks": lambda: line(buffers="interpolate"),
    "buffers, between three networks": triangle,
    "buffers of convolutions, recalibrated": lambda: random(net.convolutional, buffers="recalibrate"),
    "two data sets": lambda: random(net.two_sets),
    "two data sets, some samples": lambda: random(net.two_sets, num_samples={"train": 20, "test": None}),
    "first samples": lambda: random(num_samples=17),
    "random samples": lambda: random(num_samples=17, samples="random", seed=5),
    "groups by class": lambda: random(groups="target"),
    "groups by a function": lambda: random(groups=lambda inputs, targets: (inputs[:, 0] > 0).long() + targets),
    "groups of two data sets": lambda: random(net.two_sets, groups="target"),
    "kept samples": lambda: random(keep_samples=True),
    "kept samples of two data sets": lambda: random(net.two_sets, keep_samples=True),
    "loss of batches": lambda: random(net.loss_of_batches, plan=MeasurementPlan(threads=1)),
    "loss of the network's own": lambda: random(net.of_network),
    "squared error": lambda: random(net.regression),
    "random loss, seeded": lambda: random(net.random_loss, seed_each_point=True, seed=4),
    "loss that is not finite": lambda: random(net.not_finite, limits=[-3, 3]),
    "extremes": lambda: random(extremes=True, size=3),
    "rounded to bfloat16": lambda: random(precision="bfloat16", plan=MeasurementPlan(16, precision="bfloat16")),
    "samples read anew": lambda: random(net.batch_norm, sample_memory=1),
    "larger batches": lambda: random(plan=MeasurementPlan(batch_size=64, threads=1)),
    "first layer at once": lambda: random(plan=MeasurementPlan(batch_size=16, threads=1, first_layer=True)),
    "function": function_line,
    "adaptive plane": lambda: random(size=(17, 13), sampling="adaptive", tolerance=0.02),
    "adaptive plane, relative": lambda: random(
        size=(17, 13), sampling="adaptive", tolerance=0.02, relative_tolerance=True, seed=2
    ),
    "adaptive line": lambda: line(size=33, sampling="adaptive", tolerance=0.01),
    "points of a plane": lambda: points(door.random_plane(net.perceptron(), seed=3), [[0.1, 0.2], [-3, 1], [0, 0]]),
    "points of a line": lambda: points(
        door.line_between(net.normalized(0), net.normalized(1)), [[0.3], [1.2]], net.batch_norm
    ),
    "points, random samples": lambda: points(
        door.random_plane(net.perceptron(), seed=3), np.eye(2), num_samples=9, samples="random", seed=8
    ),
    "two workers": lambda: random(device_ids=[0, 1]),
    "failed points, measured again": failing,
    "interrupted and resumed": interrupted,
    "interrupted and resumed, adaptive": lambda: interrupted("adaptive"),
    "larger grid in the same file": larger_grid,
    "refined by a factor": lambda: changed(door.refine, factor=2),
    "refined to a size": lambda: changed(door.refine, size=(7, 6)),
    "refined, adaptive": lambda: changed(door.refine, size=17, sampling="adaptive", tolerance=0.05),
    "adaptive, refined": lambda: changed(
        door.refine, {"sampling": "adaptive", "tolerance": 0.05, "size": 9}, factor=2
    ),
    "widened by a margin": lambda: changed(door.widen, margin=0.6),
    "widened to limits": lambda: changed(door.widen, limits=[-4, 3, -2, 2]),
    "run": of_run,
    "run, two intervals": lambda: of_run({"intervals": [range(3), range(2, 5)]}),
    "run by steps": lambda: of_run({"unit": "step", "intervals": [range(0, 16, 3)]}),
    "run with statistics": lambda: of_run(build=net.normalized, callback_fn=net.batch_norm, buffers="recalibrate"),
    "run, centred and kept": lambda: of_run(centering="mean", save_directions=True),
    "run, layers and seed": lambda: of_run(normalization="layer", perturb_one_dimensional=True, seed=7),
    "run, other settings": lambda: of_run(collect_landscape={"landscape_size": 4, "num_samples": 11}),
    "run, along eigenvectors": lambda: of_run(directions="hessian"),
    "run, along extreme eigenvectors of ggn": lambda: of_run(directions="ggn", which="second", rise=0.3),
    "run with another run": with_other_run,
    "run with another run, projected": lambda: with_other_run(plane_of="first"),
    "run with a network": with_network,
}  # fmt: skip
