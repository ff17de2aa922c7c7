"""The numbers in the names of checkpoints, as people and programs name them."""

import random

import pytest

from collectors.run_directory.numbering import Numbers, natural_key, numbers_inside, numbers_of_names


def of(names, unit=None):
    return numbers_of_names([("somewhere", *name.split("/")) for name in names], unit)


@pytest.mark.parametrize(
    ("names", "unit", "numbers", "counts"),
    [
        (["ep_1.pt", "ep_10.pt", "ep_2.pt"], None, (1, 10, 2), "epoch"),
        (["1.pth", "2.pth", "03.pth"], None, (1, 2, 3), None),
        (["1.pth", "2.pth", "03.pth"], "step", (1, 2, 3), "step"),
        (["epoch1.pth.tar", "epoch2.pth.tar", "epoch30.pth.tar"], None, (1, 2, 30), "epoch"),
        (["checkpoint-500", "checkpoint-1000", "checkpoint-1500"], None, (500, 1000, 1500), None),
        (["checkpoint-500/model.safetensors", "checkpoint-1000/model.safetensors", "checkpoint-1500/model.safetensors"],
         None, (500, 1000, 1500), None),
        (["epoch_1/0.pt", "epoch_2/0.pt", "epoch_3/0.pt"], None, (1, 2, 3), "epoch"),
        (["epoch=0-step=100.ckpt", "epoch=1-step=200.ckpt", "epoch=2-step=300.ckpt"], None, (0, 1, 2), "epoch"),
        (["epoch=0-step=100.ckpt", "epoch=1-step=200.ckpt", "epoch=2-step=300.ckpt"], "step", (100, 200, 300), "step"),
        (["epoch=0-step=100.ckpt", "epoch=0-step=200.ckpt", "epoch=1-step=300.ckpt"], None, (100, 200, 300), "step"),
        (["epoch=0-step=5.ckpt", "epoch=1-step=10.ckpt", "last.ckpt", "epoch=2-step=15.ckpt"],
         None, (0, 1, None, 2), "epoch"),
        (["epoch=0.ckpt", "epoch=1.ckpt", "epoch=2.ckpt", "epoch=2-v1.ckpt"], None, (0, 1, 2, 2), "epoch"),
        (["Net_3_epoch.safetensors", "Net_4_epoch.safetensors", "Net_5_epoch.safetensors"], None, (3, 4, 5), "epoch"),
        (["resnet18-ep1-loss0.53", "resnet18-ep2-loss0.41", "resnet18-ep3-loss1.5e-05"], None, (1, 2, 3), "epoch"),
        (["loss0.53_7.pt", "loss0.41_8.pt", "loss0.3_9.pt"], None, (7, 8, 9), None),
        (["cifar10_ep1.pt", "cifar100_ep2.pt", "cifar10_ep3.pt"], None, (1, 2, 3), "epoch"),
        (["global_step500", "global_step1000", "global_step1500"], None, (500, 1000, 1500), "step"),
        (["a_iter_5.pt", "b_iter_6.pt", "c_iter_7.pt"], None, (5, 6, 7), "step"),
        (["model_1.pt", "model_2.pt", "model_3.pt", "model_best.pt"], None, (1, 2, 3, None), None),
        (["step_10.pt", "step_20.pt", "final.pt"], "step", (10, 20, None), "step"),
        (["step_9.pt", "step_100k.pt", "step_500K.pt", "step_1m.pt"], None, (9, 100_000, 500_000, 1_000_000), "step"),
        (["sd_500k.ckpt", "sd_1000k.ckpt", "sd_2M.ckpt"], None, (500_000, 1_000_000, 2_000_000), None),
        (["10k_steps.pt", "20k_steps.pt", "100k_steps.pt"], None, (10_000, 20_000, 100_000), "step"),
        (["3d_1_mm2.pt", "3d_2_mm2.pt", "3d_10_mm2.pt"], None, (1, 2, 10), None),
        (["a1kb.pt", "a2kb.pt", "a3mb.pt"], None, (1, 2, None), None),
        (["step_500k.pt", "step_1m.pt", "step_1.5m.pt"], None, (500_000, 1_000_000, None), "step"),
        (["model_1_0.53.pt", "model_2_1.pt", "model_3_0.4.pt"], None, (1, None, 3), None),
        (["lr1e-4_ep1.pt", "lr1e-4_ep2.pt", "lr1e-4_ep10.pt"], None, (1, 2, 10), "epoch"),
        (["lr5e-05_ep0_it5.pt", "lr5e-05_ep1_it10.pt", "lr5e-05_ep2_it15.pt"], None, (0, 1, 2), "epoch"),
        (["ep1_of_ep10.pt", "ep2_of_ep10.pt", "ep3_of_ep10.pt"], None, (1, 2, 3), "epoch"),
    ],
)  # fmt: skip
def test_numbers_in_names(names, unit, numbers, counts):
    assert of(names, unit) == Numbers(numbers, counts, "name")
    order = random.Random(0).sample(range(len(names)), len(names))
    found = of([names[index] for index in order], unit)
    assert found.found == tuple(numbers[index] for index in order)


@pytest.mark.parametrize(
    ("names", "unit"),
    [
        (["a.pt", "b.pt", "c.pt"], None),
        (["first.pt", "middle.pt", "last.pt"], None),
        (["model_3_0823.pth", "model_4_0825.pth", "model_5_0829.pth"], None),  # an epoch and an accuracy
        (["2026-11-22_10-15.pt", "2026-11-22_11-20.pt", "2026-11-23_00-10.pt"], None),
        (["seed0/ep_1.pt", "seed1/ep_1.pt", "seed2/ep_1.pt"], None),  # three trainings, not three epochs
        (["seed0_ep_1.pt", "seed0_ep_2.pt", "seed1_ep_1.pt"], None),
        (["fold_1.pt", "fold_2.pt", "fold_3.pt"], None),
        (["step_1.pt", "step_2.pt", "step_3.pt"], "epoch"),
        (["step_0.5m.pt", "step_1.5m.pt", "step_2.5m.pt"], None),
        (["a.pt"], None),
        ([], None),
        (["same.pt"] * 3, None),
    ],
)
def test_names_that_leave_the_choice(names, unit):
    assert of(names, unit) is None


def test_names_are_sorted_as_people_count():
    names = ["ep_1", "ep_2", "ep_10", "ep_010b", "x", "10", "9", ""]
    assert sorted(names, key=natural_key) == ["", "9", "10", "ep_1", "ep_2", "ep_10", "ep_010b", "x"]


@pytest.mark.parametrize(
    ("counters", "unit", "expected"),
    [
        ([{"epoch": 1}, {"epoch": 3}, {"epoch": 2}], None, Numbers((1, 3, 2), "epoch", "epoch inside")),
        ([{"epoch": 0, "step": 4}, {"epoch": 0, "step": 8}, {"epoch": 1, "step": 9}], None,
         Numbers((4, 8, 9), "step", "step inside")),
        ([{"epoch": 0, "step": 4}, {"epoch": 1, "step": 8}, {"epoch": 2, "step": 9}], None,
         Numbers((0, 1, 2), "epoch", "epoch inside")),
        ([{"epoch": 0, "step": 4}, {"epoch": 1, "step": 8}, {"epoch": 2, "step": 9}], "step",
         Numbers((4, 8, 9), "step", "step inside")),
        ([{"epoch": 0}, {"epoch": 1}, {}], None, Numbers((0, 1, None), "epoch", "epoch inside")),
        ([{"step": 4}, {"step": 8}, {"step": 9}], "epoch", None),
        ([{}, {}, {}], None, None),
        ([{"epoch": 5}, {"epoch": 5}, {"epoch": 5}], None, None),
    ],
)  # fmt: skip
def test_numbers_inside(counters, unit, expected):
    assert numbers_inside(counters, unit) == expected
