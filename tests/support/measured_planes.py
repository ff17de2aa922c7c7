"""What an evaluator measures of one plane, from its loading to its end."""


def measure_plane(evaluator, plane, points, **loading):
    """Returns the values at points of a plane; the evaluator is closed afterwards."""
    evaluator.load(*plane, **loading)
    values = evaluator.measure(points)
    evaluator.close()
    return values
