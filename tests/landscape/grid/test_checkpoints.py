"""Who is on the plane: the roles of checkpoints, networks and the origin, and how a file keeps them."""

from dataclasses import replace

import landscape_examples
import numpy as np
import pytest
from landscape_examples import write_landscape

from landscape.grid.checkpoints import CheckpointsData, OriginData
from landscape.grid.landscape_file import read_landscape


def example():
    """Two runs, the first one unbroken to its last checkpoint, and two networks of no run between their rows."""
    zeros = np.zeros(6)
    return CheckpointsData.empty(
        [3, 0, 5, 8, 1, 9], zeros, zeros, zeros, zeros, run=[0, -1, 0, 1, -1, 1], runs=("SGD", "Adam"),
        name=["", "average", "", "", "EMA", ""], final=[False, False, True, False, False, False],
    )  # fmt: skip


class TestRoles:
    def test_a_path_holds_the_rows_of_one_run(self):
        found = example()
        assert [rows.tolist() for rows in found.paths] == [[0, 2], [3, 5]]
        assert found.networks.tolist() == [1, 4]
        roles = ["checkpoint", "named network", "final weights", "checkpoint", "named network", "checkpoint"]
        assert [found.role(row) for row in range(6)] == roles
        labels = ["SGD, epoch 3", "average", "SGD, epoch 5", "Adam, epoch 8", "EMA", "Adam, epoch 9"]
        assert [found.label(row, "epoch") for row in range(6)] == labels

    def test_some_rows_alone(self):
        part = example().part(np.array([3, 5]))
        assert (part.number.tolist(), part.name, part.run_name(0)) == ([8, 9], ("", ""), "Adam")
        assert part.metrics["loss"].shape == (2,)

    @pytest.mark.parametrize(
        ("origin", "unit", "said"),
        [
            (OriginData(), "epoch", "origin"),
            (OriginData(role="named network", name="SWA"), "epoch", "SWA"),
            (OriginData(role="final weights", number=20), "epoch", "final weights (epoch 20)"),
            (OriginData(role="final weights", run="SGD", number=20), "step", "final weights of SGD (step 20)"),
            (OriginData(role="checkpoint", number=7), "epoch", "checkpoint (epoch 7)"),
            (OriginData(role="checkpoint", run="SGD", number=7), "checkpoint", "checkpoint 7 of SGD"),
        ],
    )
    def test_what_an_origin_is_called(self, origin, unit, said):
        assert origin.label(unit) == said


class TestFile:
    @pytest.mark.parametrize("origin", [OriginData(role="named network", name="EMA $x$ é"), OriginData()])
    def test_an_origin_of_no_run_comes_back(self, tmp_path, origin):
        data = landscape_examples.build()
        data.origin = replace(origin, metrics=data.origin.metrics)
        write_landscape(tmp_path / "a.h5", data)
        back = read_landscape(tmp_path / "a.h5").origin
        assert (back.role, back.name, back.run, back.number) == (origin.role, origin.name, "", None)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            (
                {"run": np.array([0, 0, 2, -1])},
                r"checkpoints\.run must hold -1 \(no run\) or the place of one of the",
            ),
            ({"run": np.array([0, 0, 1, -2])}, r"checkpoints\.run must hold -1"),
            ({"runs": ("SGD", "SGD")}, r"checkpoints\.runs must be different names, but got \['SGD', 'SGD'\]"),
            ({"runs": ("SGD", "")}, r"checkpoints\.runs\[1\] must be a name of 1 to 100 printable letters"),
            ({"name": ("", "", "", "")}, r"checkpoints\.name\[3\] must be a name of 1 to 100 printable letters"),
            ({"name": ("", "", "", "a\0")}, r"checkpoints\.name\[3\] must be a name"),
            ({"name": ("",)}, r"checkpoints\.name must have 4 names, but has 1"),
            (
                {"final": np.array([True, False, False, False])},
                r"checkpoints\.final must be False but for the last",
            ),
            ({"final": np.array([False, False, False, True])}, r"checkpoints\.final must be False .* rows \[3\]"),
        ],
    )
    def test_rows_that_do_not_fit_together(self, changes, match, tmp_path):
        data = landscape_examples.build()
        assert data.checkpoints is not None
        wrong = replace(data, checkpoints=replace(data.checkpoints, **changes))
        with pytest.raises(ValueError, match=match):
            write_landscape(tmp_path / "a.h5", wrong)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"role": "convergence point"}, r"origin\.role must be one of \['origin', 'named network', 'checkpoint', "),
            ({"role": "named network", "name": ""}, r"origin\.name must be a name of 1 to 100"),
            ({"role": "named network", "name": "SWA"}, r"origin\.run and origin\.number must be absent"),
            ({"run": "a\nb"}, r"origin\.run must be a name of 0 to 100 printable letters"),
        ],
    )
    def test_an_origin_that_says_nonsense(self, changes, match):
        data = landscape_examples.build()
        with pytest.raises(ValueError, match=match):
            replace(data, origin=replace(data.origin, **changes)).validate()
