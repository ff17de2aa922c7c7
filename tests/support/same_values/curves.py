"""Calls that measure anything else: curvature, comparisons, curves and barriers, aligned networks, trainings."""

import door
import networks as net
import torch
from grids import FILE, OPTIONS, measured
from torch import nn
from values import of_barrier, of_comparison, of_curvature, of_landscape, of_path, of_plane

from landscape import SummaryLandscape
from landscape.paths.path import Path


def curvature(**options):
    chosen = {**OPTIONS, "output": "curvature.h5", "top": 3, **options}
    found = door.measure_curvature(net.trained(), net.plain, **chosen)
    vectors = found.vectors() if chosen.get("keep_vectors") else ()
    return {"curvature": of_curvature(found), "vectors": list(vectors)}


def curvature_of_run(*numbers, **options):
    """Measures the curvature of a run, of some checkpoints after others."""
    run = SummaryLandscape(net.collect("run"))
    found = [run.gen_curvature(net.plain, of, **{**OPTIONS, "top": 2, **options}) for of in numbers or (None,)]
    return {"curvature": [of_curvature(each) for each in found]}


def plane_of_curvature():
    run = SummaryLandscape(net.collect("run"))
    found = run.gen_curvature(net.plain, top=2, bottom=1, keep_vectors=True, **OPTIONS)
    return {"curvature": of_curvature(found), "measured": measured(found.plane(which=("top", "bottom")))}


def eigenvectors(**options):
    given = {name: value for name, value in OPTIONS.items() if name != "plan"}
    return measured(door.hessian_plane(net.trained(), net.plain, **given, **options), net.plain)


def compared(recipes=None, callback_fn=net.plain, **options):
    recipes = {"one": [net.trained(seed) for seed in range(3)], "two": [net.perceptron(seed) for seed in range(3)]} \
        if recipes is None else recipes  # fmt: skip
    chosen = {**OPTIONS, "output": "comparison.h5", "directions": 4, "points": 5, **options}
    return of_comparison(door.compare(recipes, callback_fn, **chosen))


def compared_pairs():
    before = {f"seed {seed}": net.perceptron(seed) for seed in range(3)}
    return compared({"before": before, "after": {f"seed {seed}": net.trained(seed) for seed in range(3)}})


def compared_statistics():
    recipes = {
        "trained": [net.trained(seed, net.normalized) for seed in range(3)],
        "new": [net.normalized(seed) for seed in range(3)],
    }
    return compared(recipes, net.batch_norm, buffers="recalibrate", recalibration_batch_size=20)


def interrupting(number):
    """Returns a callback_fn whose loss interrupts the run as a user would, when it is called for this time."""
    calls = 0

    def callback_fn():
        def loss(outputs, targets):
            nonlocal calls
            calls += 1
            if calls == number:
                raise KeyboardInterrupt
            return nn.functional.cross_entropy(outputs, targets)

        return (loss, *net.plain()[1:])

    return callback_fn


def interrupted_comparison():
    """Compares until the user interrupts it, and goes on."""
    net.interrupted(lambda: compared(callback_fn=interrupting(150)))
    return compared()


def connected(build=net.perceptron, callback_fn=net.plain, **options):
    chosen = {"steps": 25, "batch_size": 12, "seed": 2, "output": "path.safetensors", **OPTIONS, **options}
    return door.connect(net.trained(0, build), net.trained(1, build), callback_fn, **chosen)


def curve(**options):
    path = connected(**options)
    return {"path": of_path(path), "saved": of_path(Path.load("path.safetensors"))}


def curve_resumed():
    """Fits a curve whose loss is interrupted, and goes on."""
    net.interrupted(lambda: connected(callback_fn=interrupting(60), steps=40))
    return {"path": of_path(connected(steps=40))}


def along_curve():
    path = connected()
    landscape = door.evaluate(path, net.plain, output=FILE, size=9, **OPTIONS)
    return {"landscape": of_landscape(landscape), "barrier": of_barrier(door.Barrier.of(landscape))}


def plane_of_curve():
    path = connected(bends=2)
    return {"routes": path.routes(5), "plane": of_plane(path.plane()), "measured": measured(path.plane())}


def barrier(build=net.perceptron, callback_fn=net.plain, **options):
    ends = [net.trained(seed, build) for seed in range(2)]
    return of_barrier(door.barrier(*ends, callback_fn, 9, output=FILE, **{**OPTIONS, **options}))


def barrier_of_curve():
    path = connected(net.normalized, net.batch_norm)
    return of_barrier(door.barrier_of_path(path, net.batch_norm, 7, output=FILE, **OPTIONS))


def aligned():
    a, b = (net.trained(seed, net.rectified) for seed in range(2))
    found = door.align(b, a, example=net.features()[0])
    way = door.barrier(a, dict(found.weights), net.rectified_loss, 7, output=FILE, **OPTIONS)
    return {
        "weights": dict(found.weights), "distance": [found.distance_before, found.distance_after],
        "barrier": of_barrier(way),
    }  # fmt: skip


def trained_by_model():
    """Trains with our loop, which keeps checkpoints, and goes on from one with another network."""
    from collectors import CheckpointConfig, Model, ModelCheckpoint, load_checkpoint

    inputs, targets = net.features()
    data = [(inputs[start : start + 10], targets[start : start + 10]) for start in range(0, 40, 10)]

    def model(seed):
        network = net.normalized(seed)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        return Model(
            network, nn.CrossEntropyLoss(), optimizer, {"accuracy": net.accuracy}, gradient_accumulation_steps=2
        )

    keeper = ModelCheckpoint("model", "checkpoints", CheckpointConfig(save_checkpoint_steps=3))
    model(0).train(2, data, callbacks=[keeper])
    resumed = model(1)
    resumed.train(3, data, resume_from=load_checkpoint("checkpoints/model-2_2.safetensors"))
    return {"weights": dict(resumed.network.state_dict()), "eval": resumed.eval(data)}


def thor():
    from collectors import thor as make

    network = net.convolutions()
    optimizer = make(network, 0.05, 0.03, 0.9, frequency=3)
    inputs, targets = net.images()
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network.eval()(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return {"weights": dict(network.state_dict()), "losses": losses}


CALLS = {
    "curvature": curvature,
    "curvature of ggn": lambda: curvature(matrix="ggn", num_samples=30),
    "curvature, lowest and density": lambda: curvature(bottom=2, density_probes=2, density_steps=8, seed=3),
    "curvature, kept vectors": lambda: curvature(keep_vectors=True, trace_probes=0),
    "curvature, few products": lambda: curvature(max_products=4),
    "curvature of a run": curvature_of_run,
    "curvature of a run, in two calls": lambda: curvature_of_run([0, 3], [1, 3, 4]),
    "plane of a curvature": plane_of_curvature,
    "plane along eigenvectors": eigenvectors,
    "plane along the lowest eigenvector": lambda: eigenvectors(which=("top", "bottom"), rise=0.2, seed=1),
    "line along an eigenvector of ggn": lambda: eigenvectors(which="second", matrix="ggn"),
    "comparison": compared,
    "comparison of pairs": compared_pairs,
    "comparison of one network each": lambda: compared({"one": [net.trained(0)], "two": [net.trained(1)]}),
    "comparison, traces of lines": lambda: compared(trace_lines=4, normalization="layer", seed=6),
    "comparison, recalibrated": compared_statistics,
    "comparison, interrupted and resumed": interrupted_comparison,
    "curve": curve,
    "curve, polygon of three bends": lambda: curve(kind="polygon", bends=3),
    "curve with statistics": lambda: curve(build=net.normalized, callback_fn=net.batch_norm),
    "curve, interrupted and resumed": curve_resumed,
    "landscape along a curve": along_curve,
    "plane of a curve": plane_of_curve,
    "barrier": barrier,
    "barrier, recalibrated": lambda: barrier(net.normalized, net.batch_norm),
    "barrier, interpolated": lambda: barrier(net.normalized, net.batch_norm, buffers="interpolate"),
    "barrier on a curve": barrier_of_curve,
    "aligned networks": aligned,
    "training by Model, resumed": trained_by_model,
    "training by Thor": thor,
}  # fmt: skip
