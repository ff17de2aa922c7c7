"""Composer: its SummaryCollector in a real Trainer, its models in callback_fn, and the how-to page."""

import os
import pickle
import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
from cases import FOLDERS, assert_same, own_values, weights
from scripts import run_python
from torch import nn
from waiting import PATIENCE

import composer_cases as cases  # isort: skip
import composer
from composer.core import DataSpec
from composer.optim import LinearScheduler
from event_reading import scalars
from pages import code_blocks, run_page_block, takes_minutes

from collectors.composer import SummaryCollector
from collectors.errors import RunDirectoryError
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from workers.composer_loss import evaluator_from
from workers.measurement_plan import MeasurementPlan
from workers.torch.losses import composer_step

STEPS = {"unit": "step", "intervals": [[0, 2, 4, 6, 12]]}
EPOCHS = {"unit": "epoch", "intervals": [[0, 1, 2, 3]]}
# Python runs this in every process of a page's script, Ray's included; see composer_import.py.
SITE = """
import sys
class _Before:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import composer_import
sys.meta_path.insert(0, _Before())
"""


def site(folder):
    """Returns the environment of a process that imports Composer."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), *FOLDERS]), "HOME": str(folder)}


def fit(folder, landscape=STEPS, existing="error", **options):
    collector = SummaryCollector(folder, collect_landscape=landscape, existing=existing)
    made = cases.trainer(callbacks=[collector], **options)
    made.fit()
    return made


def present(folder):
    return RunDirectory(folder).present(tuple(range(40)))


def test_an_epoch_that_ends_early_is_none(tmp_path):
    with pytest.warns(UserWarning, match=r"ended at epoch 1 without saving \[2, 3\]"):
        made = fit(tmp_path, EPOCHS, max_duration="6ba")
    path = made.save_checkpoint(str(tmp_path / "checkpoint"))
    made.close()
    assert present(tmp_path) == [0, 1]
    fit(tmp_path, EPOCHS, existing="resume", load_path=str(path)).close()
    assert present(tmp_path) == [0, 1, 2, 3]
    assert RunDirectory(tmp_path).metadata.step_per_epoch == 4


def test_a_second_fit_goes_on_by_itself(tmp_path):
    collector = SummaryCollector(tmp_path / "parts", collect_landscape=STEPS)
    made = cases.trainer(cases.without_dropout(), callbacks=[collector], max_duration=None)
    with pytest.warns(UserWarning, match="without saving"):
        made.fit(duration="1ep")
    made.fit(duration="2ep")
    made.close()
    fit(tmp_path / "whole", model=cases.without_dropout()).close()
    assert present(tmp_path / "parts") == present(tmp_path / "whole") == [0, 2, 4, 6, 12]
    for number in (4, 12):
        assert_same(*(weights(tmp_path / part, number) for part in ("parts", "whole")), rtol=0, atol=0)


def test_a_fit_that_begins_anew_after_a_second_keeps_the_run(tmp_path):
    collector = SummaryCollector(tmp_path, collect_landscape=EPOCHS)
    made = cases.trainer(callbacks=[collector], max_duration=None)
    with pytest.warns(UserWarning, match="without saving"):
        made.fit(duration="1ep")
    made.fit(duration="2ep")
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        made.fit(duration="1ep", reset_time=True)
    made.close()
    assert present(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["own", "compiled"])
def test_the_names_are_those_of_the_model_in_callback_fn(tmp_path, kind):
    # The eager back end needs no C++ compiler.
    options = {"compile_config": {"backend": "eager"}} if kind == "compiled" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.compile's own
        fit(tmp_path, **options).close()
    file = RunDirectory(tmp_path).checkpoint(12)
    describe_network(cases.Classifier()).check_state("it", file.shapes)
    assert "net.0.weight" in file.shapes


def test_the_recorded_learning_rate_is_the_steps_own(tmp_path):
    model = cases.Classifier()
    collector = SummaryCollector(tmp_path, 1, {"collect_metric": True}, keep_default_action=False)
    used = []

    class Used(composer.Callback):
        def before_train_batch(self, state, logger):
            used.append(state.optimizers[0].param_groups[0]["lr"])

    made = cases.trainer(model, callbacks=[collector, Used()], schedulers=LinearScheduler(alpha_f=0.0))
    made.fit()
    made.close()
    rates = [value for _, value in scalars(tmp_path, "learning_rate/auto")]
    assert rates == pytest.approx(used)
    assert len(set(used)) > 10
    assert [step for step, _ in scalars(tmp_path, "loss/auto")] == list(range(1, 13))


def test_sharded_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(composer.State, "fsdp_enabled", True)
    made = cases.trainer(callbacks=[SummaryCollector(tmp_path / "run", collect_landscape=STEPS)])
    with pytest.raises(ValueError, match="must not shard the weights"):
        made.fit()
    monkeypatch.undo()
    made.close()
    assert not (tmp_path / "run").exists()


CRASH = """
import composer_cases as cases
from collectors.composer import SummaryCollector
collector = SummaryCollector("run", collect_landscape={"unit": "step", "intervals": [[0, 2, 4, 6, 12]]})
made = cases.trainer(callbacks=[collector, cases.CrashAfter(7)])
made.fit()
"""


@pytest.mark.slow
def test_a_crash_without_close_leaves_whole_metadata(tmp_path):
    script = tmp_path / "crash.py"
    script.write_text(CRASH)
    result = subprocess.run(
        [sys.executable, str(script)], env=site(tmp_path),
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "Crash: after 7 steps" in result.stderr
    assert present(tmp_path / "run") == [0, 2, 4, 6]
    RunDirectory(tmp_path / "run").checkpoint(6)


DISTRIBUTED = """
import composer_cases as cases
from leaving import leave
from composer.utils import dist
from collectors.composer import SummaryCollector
from torch.utils.data import DataLoader
dist.initialize_dist("cpu")
data = cases.data()
loader = DataLoader(data, batch_size=4, sampler=dist.get_sampler(data))
collector = SummaryCollector("run", collect_landscape={"unit": "step", "intervals": [[0, 2, 4, 6, 12]]})
made = cases.trainer(callbacks=[collector], train_dataloader=loader)
made.fit()
print("wrapped:", type(made.state.model).__name__, "rank", dist.get_global_rank())
made.close()
leave()
"""


@pytest.mark.timeout(4 * PATIENCE)  # on a busy machine, the imports alone of two processes take a minute
@pytest.mark.slow
def test_of_two_processes_the_first_saves_the_users_model(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DISTRIBUTED)
    launched = "-m", "composer.cli.launcher", "-n", "2", script
    printed = run_python(*launched, patience=3 * PATIENCE, env=site(tmp_path), cwd=tmp_path)
    assert "wrapped: DistributedDataParallel rank 0" in printed
    assert present(tmp_path / "run") == [0, 2, 4, 6, 12]
    describe_network(cases.Classifier()).check_state("it", RunDirectory(tmp_path / "run").checkpoint(12).shapes)


def measured(built):
    return own_values(built, MeasurementPlan(batch_size=16))[0]


def test_loss_and_metrics_are_those_of_composers_evaluation():
    model = cases.Classifier()
    made = cases.trainer(model, train_dataloader=None, max_duration=None)
    made.eval(cases.loader(48))
    expected = float(made.state.eval_metrics["eval"]["accuracy"].compute())
    made.close()
    values = measured(evaluator_from(model, cases.loader(48)))
    assert values == pytest.approx({"loss": cases.own_loss((None, model, cases.loader(48), {})), "accuracy": expected})


def test_a_composer_model_may_be_returned_as_its_own_loss():
    model = cases.Classifier()
    built = (model, model, cases.loader(48), {})
    assert measured(built)["loss"] == pytest.approx(cases.own_loss(built), rel=1e-5)


def test_the_callback_fn_can_be_pickled():
    callback_fn = pickle.loads(pickle.dumps(partial(evaluator_from, cases.Classifier(), cases.loader(48))))
    assert measured(callback_fn()) == pytest.approx(measured(evaluator_from(cases.Classifier(), cases.loader(48))))


def double(batch):
    return [2 * batch[0], batch[1]]


@pytest.mark.parametrize("kind", ["loader", "iterable"])
def test_transforms_of_a_data_spec_are_applied(kind):
    batches = cases.loader(48) if kind == "loader" else list(cases.loader(48))
    values = measured(evaluator_from(cases.Classifier(), DataSpec(batches, microbatch_transforms=double)))
    expected = cases.own_loss((None, cases.Classifier(), [double(batch) for batch in cases.loader(48)], {}))
    assert values["loss"] == pytest.approx(expected, rel=1e-5)


def test_the_metrics_of_an_evaluator_are_chosen():
    chosen = composer.Evaluator(label="eval", dataloader=cases.loader(48), metric_names=[])
    assert set(measured(evaluator_from(cases.Classifier(), chosen))) == {"loss"}
    assert set(measured(evaluator_from(cases.Classifier(), cases.loader(48), {}))) == {"loss"}


class Taking(cases.Classifier):
    """Takes the labels out of a batch, and gives several losses, as Composer allows."""

    def forward(self, batch):
        self.labels = batch.pop("labels")
        return self.net(batch["inputs"])

    def loss(self, outputs, batch):
        losses = nn.functional.cross_entropy(outputs, self.labels, reduction="none"), outputs.square().mean()
        return losses if self.several == "tuple" else {"first": losses[0], "second": losses[1]}


@pytest.mark.parametrize("several", ["tuple", "mapping"])
def test_several_losses_are_added_up_and_batches_stay_whole(several):
    model = Taking()
    model.several = several
    batches = [{"inputs": inputs, "labels": labels} for inputs, labels in cases.loader(48)]
    with torch.no_grad():
        loss, outputs = composer_step(model.eval(), batches[0])
        expected = nn.functional.cross_entropy(outputs, batches[0]["labels"]) + outputs.square().mean()
    assert float(loss) == pytest.approx(float(expected))
    assert measured(evaluator_from(model, batches, {}))["loss"] == measured(evaluator_from(model, batches, {}))["loss"]


def test_no_composer_model_is_an_error():
    with pytest.raises(TypeError, match=r"model must be a composer\.ComposerModel"):
        evaluator_from(nn.Linear(2, 2), cases.loader())


@takes_minutes
@pytest.mark.slow
def test_the_page(tmp_path):
    (block,) = code_blocks("composer")
    run_page_block(block, tmp_path / "page", environment=site(tmp_path))
    assert list((tmp_path / "page" / "run").glob("*.h5"))
