"""Curves between two networks of any framework, as evaluators fit them."""

from collectors.networks.readers import read_network
from workers.curves.curve import CurveTask, FittingSettings


def curve_task(evaluator, *ends, **settings):
    """Returns the task of a curve between two networks or states; the straight line between them is loaded."""
    space = evaluator.description.space
    states = [end if isinstance(end, dict) else read_network(end) for end in ends]
    first, last = ({info.name: state[info.name] for info in space.parameters} for state in states)
    buffers = {info.name: states[0][info.name] for info in space.buffers}
    direction = {info.name: last[info.name] - first[info.name] for info in space.trainable}
    evaluator.load(first, [direction], buffers, far_points=[(1.0,)])
    return CurveTask(FittingSettings(**settings), first, last, buffers)


def fitted_step_by_step(evaluator, task):
    """Returns what is fitted by a call for each step."""
    fitting = evaluator.fit_curve(task, None, 0.0)
    for step in range(1, task.settings.steps):
        assert fitting.step == step
        fitting = evaluator.fit_curve(task, fitting, 0.0)
    return fitting
