"""A training that is killed and resumed ends as the undisturbed one, bit for bit.

Run as a script, this file is the warm process from which trainings are forked and killed: one import of PyTorch
serves them all.
"""

import contextlib
import copy
import hashlib
import json
import os
import random
import secrets
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from monitored_runs import At, WithoutLength, stop_after
from scripts import run_python
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from collectors.callbacks.callback import Callback
from collectors.errors import CheckpointError
from collectors.model.model import Model
from collectors.model_checkpoint.checkpoint_file import latest_checkpoint, load_checkpoint
from collectors.model_checkpoint.config import CheckpointConfig
from collectors.model_checkpoint.model_checkpoint import ModelCheckpoint

EPOCHS, BATCHES = 3, 5
STEPS = EPOCHS * BATCHES


class Noisy(Dataset):
    """Samples with noise from all three global generators and one of its own."""

    def __init__(self):
        self.points = np.random.default_rng(3).normal(size=(5 * BATCHES - 2, 4)).astype(np.float32)
        self.generator = np.random.default_rng(4)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        noise = random.gauss(0, 0.1) + np.random.normal(0, 0.1) + self.generator.normal(0, 0.1)  # noqa: NPY002
        inputs = torch.from_numpy(self.points[index]) + torch.randn(4) / 10 + noise
        return inputs.float(), index % 3


class Unsized:
    """Batches in an order of their own, how many is not known; drawn anew from Python's generator in each epoch."""

    def __init__(self):
        self.random = random.Random(5)

    def __iter__(self):
        data = Noisy()
        order = list(range(BATCHES))
        self.random.shuffle(order)
        for number in order:
            pairs = [data[number * 4 + place] for place in range(4)]
            yield torch.stack([inputs for inputs, _ in pairs]), torch.tensor([target for _, target in pairs])


class Network(nn.Module):
    """Draws random numbers and keeps statistics; one layer is tied to another."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 4))
        self.layers[3].weight = self.layers[0].weight
        self.head = nn.Linear(4, 3).double()

    def forward(self, inputs):
        outputs = self.layers(inputs) + torch.from_numpy(np.random.normal(size=4)) / 10  # noqa: NPY002
        return self.head(outputs.double() * random.uniform(0.9, 1.1))


class LearntLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.ones(3, dtype=torch.float64))

    def forward(self, outputs, targets):
        if torch.is_grad_enabled():
            self.weight.mul_(0.9).add_(0.1 * (1 + torch.bincount(targets, minlength=3)))
        return nn.functional.cross_entropy(outputs, targets, self.weight)


class Schedule(Callback):
    """Steps a scheduler, and writes every loss down; it is listed after the ModelCheckpoint."""

    def __init__(self, scheduler, every):
        self.scheduler, self.every, self.losses = scheduler, every, []

    def on_train_begin(self, run_context):
        self.losses = ["begun"]

    def on_train_step_end(self, run_context):
        params = run_context.original_args()
        if params.cur_step_num % self.every == 0:
            self.scheduler.step()
        self.losses.append(float(params.net_outputs))

    def on_train_epoch_end(self, run_context):
        self.losses.append(random.random())

    def state_dict(self):
        return {"losses": list(self.losses)}

    def load_state_dict(self, state):
        self.losses = list(state["losses"])


def loader(kind):
    data = Noisy()
    own = torch.Generator().manual_seed(6)
    if kind == "batch sampler":
        return DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data, True, generator=own), 5, False))
    options = {"shuffled": {}, "own generator": {"generator": own}, "workers": {"num_workers": 2}}
    return DataLoader(data, batch_size=5, shuffle=True, **options[kind]) if kind in options else Unsized()


def accumulation(kind):
    return 1 if kind in ("shuffled", "workers") else 2


def training(kind, seed=0):
    """A model, its data and its schedule, built alike each time."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    network = Network()
    optimizer = {
        "own generator": lambda: torch.optim.Adam(network.parameters(), lr=0.01, amsgrad=True),
        "unsized": lambda: torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9),
        "workers": lambda: torch.optim.RMSprop(network.parameters(), lr=0.01),
    }.get(kind, lambda: torch.optim.AdamW(network.parameters(), lr=0.01))()
    metrics = {"accuracy": lambda outputs, targets: (outputs.argmax(1) == targets).double().mean()}
    model = Model(network, LearntLoss(), optimizer, metrics, gradient_accumulation_steps=accumulation(kind))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS)
    return model, loader(kind), scheduler


def run(kind, folder, resume_from=None, disturbance=None, *, steps=1, seed=0, epochs=EPOCHS, **config):
    """Trains with evaluations in between; returns what all bits of the end state hash to, and the losses."""
    model, data, scheduler = training(kind, seed)
    schedule = Schedule(scheduler, accumulation(kind))
    policy = CheckpointConfig(steps, keep_checkpoint_max=3, **config)
    callbacks = [ModelCheckpoint("run", folder, policy, stateful={"scheduler": scheduler}), schedule]
    callbacks += [] if disturbance is None else [disturbance]
    valid = DataLoader(Noisy(), batch_size=8, shuffle=True)
    model.fit(epochs, data, valid, [1, 3], callbacks, resume_from=resume_from)
    state = [model.network.state_dict(), model.optimizer.state_dict(), model.loss_fn.state_dict(), schedule.losses]
    return digest([*state, scheduler.state_dict(), torch.get_rng_state(), np.random.get_state(), random.getstate()])  # noqa: NPY002


def digest(tree):
    if isinstance(tree, dict):
        tree = sorted(tree.items(), key=str)
    if isinstance(tree, list | tuple):
        return hashlib.sha256("".join(map(digest, tree)).encode()).hexdigest()
    if isinstance(tree, torch.Tensor):
        tree = tree.detach().numpy()
    if isinstance(tree, np.ndarray):
        return f"{tree.dtype}{tree.shape}{tree.tobytes().hex()}"
    return repr(tree)


class Disturbed(Exception):
    pass


def disturb(run_context):
    raise Disturbed


def disturbed(kind, folder, hook, step, **options):
    """Runs until a hook of a step fails; returns the latest checkpoint."""
    with pytest.raises(Disturbed):
        run(kind, folder, disturbance=At(hook, step, disturb), **options)
    return latest_checkpoint(folder, "run")


KINDS = ["shuffled", "own generator", "batch sampler", "unsized"]
REFERENCES = {}


def reference(kind, tmp_path):
    if kind not in REFERENCES:
        REFERENCES[kind] = run(kind, tmp_path / "reference", steps=STEPS)
    return REFERENCES[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_at_every_step_changes_no_bit(kind, tmp_path):
    expected = reference(kind, tmp_path)
    for step in range(1, STEPS + 1):
        folder = tmp_path / str(step)
        moment = ("on_train_step_begin", step + 1) if step < STEPS else ("on_train_end", step)
        resumed = disturbed(kind, folder, *moment, steps=step)
        assert load_checkpoint(resumed).training_state.step == step
        assert run(kind, folder, resumed, steps=STEPS) == expected, f"after step {step}"


@pytest.mark.parametrize("hook", ["on_train_epoch_begin", "on_train_epoch_end", "on_eval_begin", "on_train_step_end"])
@pytest.mark.parametrize("step", [BATCHES, 2 * BATCHES, 2 * BATCHES + 2])
def test_resuming_after_an_error_in_any_hook(hook, step, tmp_path):
    # An evaluation counts its own steps.
    fail = At(hook, 0 if hook == "on_eval_begin" else step, disturb)
    with contextlib.suppress(Disturbed):
        run("own generator", tmp_path, disturbance=fail)
    resumed = run("own generator", tmp_path, latest_checkpoint(tmp_path, "run"))
    assert resumed == reference("own generator", tmp_path / "r")


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("step", [1, 4, BATCHES, BATCHES + 1, STEPS])
def test_resuming_from_what_an_exception_left(steps, step, tmp_path):
    disturbed("shuffled", tmp_path, "on_train_step_begin", step, steps=steps, exception_save=True)
    names = sorted(file.name for file in tmp_path.glob("*_breakpoint*"))
    if step == 1:
        assert names == []
        return
    epoch, done = divmod(step - 1, BATCHES)
    assert names == [f"run-{epoch + 1}_{done}_breakpoint.safetensors"]
    assert run("shuffled", tmp_path, tmp_path / names[0]) == reference("shuffled", tmp_path / "r")


@pytest.mark.parametrize("accumulation_steps", [1, 2, 3])
@pytest.mark.parametrize("fails_at", ["backward", "clipping"])
def test_gradients_of_an_unfinished_step_are_not_resumed(fails_at, accumulation_steps, tmp_path):
    def count_backward(*_):
        calls["backward"] += 1
        disturb_at("backward")

    def disturb_at(place):
        if calls["fail"] and place == fails_at and calls["backward"] == 6:
            raise Disturbed

    def train(**options):
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)
        # The last layer's gradients are there when the backward pass fails.
        network = nn.Sequential(nn.Linear(4, 5), nn.Identity(), nn.Linear(5, 3))
        network[1].register_full_backward_hook(count_backward)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        model = Model(
            network,
            nn.CrossEntropyLoss(),
            optimizer,
            gradient_accumulation_steps=accumulation_steps,
            clip_gradients=lambda _: disturb_at("clipping"),
        )
        model.train(2, DataLoader(data, batch_size=2, shuffle=True), **options)
        return digest([network.state_dict(), optimizer.state_dict()])

    calls = {"fail": False, "backward": 0}
    expected = train()
    calls.update(fail=True, backward=0)
    with pytest.raises(Disturbed):
        train(callbacks=ModelCheckpoint("run", tmp_path, CheckpointConfig(100, exception_save=True)))
    calls["fail"] = False
    (file,) = tmp_path.iterdir()
    assert file.name == "run-1_5_breakpoint.safetensors"
    assert train(resume_from=file) == expected


@pytest.mark.parametrize("fails_at", [1, 3])
def test_an_optimizer_step_that_is_interrupted_is_said(fails_at, tmp_path):
    class Interrupted(torch.optim.SGD):
        steps = 0

        def step(self, closure=None):
            super().step(closure)
            self.steps += 1
            if self.steps == fails_at:
                raise KeyboardInterrupt

    network = nn.Linear(4, 3)
    model = Model(network, nn.CrossEntropyLoss(), Interrupted(network.parameters(), lr=0.1))
    saving = ModelCheckpoint("run", tmp_path, CheckpointConfig(100, exception_save=True))
    with pytest.raises(KeyboardInterrupt) as caught:
        model.train(1, [(torch.ones(2, 4), torch.tensor([0, 1]))] * 4, saving)
    notes = getattr(caught.value, "__notes__", [])
    assert len(notes) == len([*tmp_path.iterdir()]) == (fails_at > 1)
    assert all("run-1_2_breakpoint.safetensors was saved in the middle of an optimizer step" in note for note in notes)


@pytest.mark.parametrize("step", [2, BATCHES, STEPS - 1])
def test_a_stop_is_a_place_to_resume_from(step, tmp_path):
    run("shuffled", tmp_path, disturbance=stop_after(step), steps=100)
    (file,) = tmp_path.iterdir()
    assert file.stem == f"run-{step // BATCHES + (step % BATCHES > 0)}_{step % BATCHES or BATCHES}"
    assert run("shuffled", tmp_path, file) == reference("shuffled", tmp_path / "r")


def test_more_epochs_can_follow_a_finished_run(tmp_path):
    run("own generator", tmp_path, epochs=2, steps=100)
    file = latest_checkpoint(tmp_path, "run")
    assert file.name == "run-2_5.safetensors"
    # Of a run that ended, the last step's hooks and evaluation are done; of one that goes on, the same are done once.
    state = load_checkpoint(file).training_state
    assert (state.epoch, state.epoch_steps, state.epoch_complete, state.step) == (2, BATCHES, True, 2 * BATCHES)
    assert run("own generator", tmp_path, file) == reference("own generator", tmp_path / "r")


def test_async_and_encrypted_files_resume_as_well(tmp_path):
    key = secrets.token_bytes(24)
    options = {"async_save": True, "enc_key": key, "enc_mode": "AES-CBC"}
    file = disturbed("shuffled", tmp_path, "on_train_step_begin", 9, **options)
    with pytest.raises(ValueError, match=r"dec_key must be given.*load_checkpoint\(path, dec_key\)"):
        run("shuffled", tmp_path, file)
    assert run("shuffled", tmp_path, load_checkpoint(file, key, "AES-CBC")) == reference("shuffled", tmp_path / "r")


def whole_and_resumed(build, data, epochs, step, folder):
    """Returns a model that was trained undisturbed, and one that goes on where a third was disturbed."""
    whole = build()
    whole.train(epochs, data)
    with pytest.raises(Disturbed):
        build().train(epochs, data, [ModelCheckpoint("run", folder), At("on_train_step_begin", step, disturb)])
    resumed = build()
    torch.manual_seed(99)
    resumed.train(epochs, data, resume_from=latest_checkpoint(folder, "run"))
    for one, other in zip(resumed.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(one, other)
    return whole, resumed


def test_states_that_pytorch_would_round_or_reorder(tmp_path):
    """A float32 master copy of bfloat16 weights, and the memory order of channels-last weights."""

    class Master(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 1e-3})

        @torch.no_grad()
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                state = self.state[parameter]
                if not state:
                    state["master"] = parameter.float().clone()
                state["master"].sub_(parameter.grad.float(), alpha=1e-3)
                parameter.copy_(state["master"])

    def build():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)).bfloat16()
        network = network.to(memory_format=torch.channels_last)
        return Model(network, nn.CrossEntropyLoss(), Master(network.parameters()))

    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(3, 2, 4, 4, generator=generator).bfloat16(), torch.tensor([0, 1, 0])) for _ in range(4)]
    whole, resumed = whole_and_resumed(build, data, 2, 6, tmp_path)
    for one, other in zip(resumed.network.parameters(), whole.network.parameters(), strict=True):
        mine, theirs = resumed.optimizer.state[one]["master"], whole.optimizer.state[other]["master"]
        assert mine.dtype == torch.float32
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_resuming_on_cuda(tmp_path):
    def build():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).cuda()
        return Model(network, nn.CrossEntropyLoss(), torch.optim.AdamW(network.parameters()), amp_level="O2")

    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(6, 4, generator=generator), torch.tensor([0, 1, 2] * 2)) for _ in range(4)]
    whole_and_resumed(build, data, 3, 7, tmp_path)


@pytest.fixture
def checkpoint(tmp_path):
    return load_checkpoint(disturbed("own generator", tmp_path, "on_train_step_begin", 4, steps=3))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"resume_from": 3}, TypeError, "resume_from must be a Checkpoint, its path or None, but got int"),
        ({"resume_from": "nowhere.safetensors"}, CheckpointError, "nowhere.safetensors cannot be read"),
        ({"initial_epoch": 1}, ValueError, "initial_epoch must be 0 when there is a resume_from, which knows it"),
    ],
)
def test_wrong_arguments(arguments, error, match, checkpoint):
    model, data, _ = training("own generator")
    with pytest.raises(error, match=match):
        model.train(EPOCHS, data, **{"resume_from": checkpoint, **arguments})


@pytest.mark.parametrize(
    ("options", "epochs", "error", "match"),
    [
        ({"steps": 100}, 2, ValueError, "epoch must be more than the 2 epochs that resume_from has done, but got 2"),
        ({"training_state": False}, EPOCHS, CheckpointError, "holds weights alone and no training state"),
    ],
    ids=["a finished run", "weights alone"],
)
def test_what_cannot_be_resumed(options, epochs, error, match, tmp_path):
    run("shuffled", tmp_path, epochs=2, **options)
    model, data, _ = training("shuffled")
    with pytest.raises(error, match=match):
        model.train(epochs, data, resume_from=latest_checkpoint(tmp_path, "run"))


def test_other_data(checkpoint):
    model, data, _ = training("own generator")
    longer = DataLoader(data.dataset, batch_size=3)
    with pytest.raises(ValueError, match=r"train_dataset must be the one .* \(5 batches\), but it has 8"):
        model.train(EPOCHS, longer, resume_from=checkpoint)
    other = DataLoader(data.dataset, batch_size=5, shuffle=True)
    with pytest.raises(CheckpointError, match=r"train_dataset has no generators \['generator', 'sampler.generator'\]"):
        model.train(EPOCHS, other, resume_from=checkpoint)

    short = WithoutLength([(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))])
    state = copy.copy(checkpoint.training_state)
    object.__setattr__(state, "epoch_random", {**state.epoch_random, "dataset": {}})
    object.__setattr__(checkpoint, "training_state", state)
    with pytest.raises(ValueError, match=r"train_dataset must be the one .* \(3 batches\), but it has 1"):
        model.train(EPOCHS, short, resume_from=checkpoint)


def test_another_model(checkpoint, tmp_path):
    _, data, _ = training("own generator")
    network, other = Network(), nn.Linear(4, 3)
    parameters = list(network.parameters())
    adam = torch.optim.Adam
    for trained, loss_fn, optimizer, match in (
        (other, LearntLoss(), adam(other.parameters()), r"the network Linear:\n  weight \(3, 4\): missing"),
        (network, LearntLoss(), torch.optim.SGD(parameters), "the optimizer SGD: it is of Adam, not of SGD"),
        (network, LearntLoss(), adam(parameters[:2]), "the optimizer Adam"),
        (network, nn.functional.cross_entropy, adam(parameters, amsgrad=True), "this Model"),
    ):
        model = Model(trained, loss_fn, optimizer, gradient_accumulation_steps=2)
        with pytest.raises(CheckpointError, match=f"does not fit {match}"):
            model.train(EPOCHS, data, resume_from=checkpoint)


def test_callbacks_that_are_missing_and_persistent_workers(checkpoint, tmp_path):
    model, data, scheduler = training("own generator")
    text = r"states of the callbacks \['ModelCheckpoint', 'Schedule'\], but callbacks has"
    with pytest.warns(UserWarning, match=text):
        model.train(EPOCHS, data, resume_from=checkpoint)
    unnamed = ModelCheckpoint("run", tmp_path)
    with pytest.raises(ValueError, match=r"stateful must have the names \['scheduler'\], .* but has \[\]"):
        model.train(EPOCHS, data, [unnamed, Schedule(scheduler, 2)], resume_from=checkpoint)
    # Persistent workers are warned of. Without workers PyTorch refuses it; what counts here is that we see it.
    vars(data)["persistent_workers"] = True
    callbacks = [ModelCheckpoint("run", tmp_path, stateful={"scheduler": scheduler}), Schedule(scheduler, 2)]
    with pytest.warns(UserWarning, match="train_dataset has persistent_workers=True"):
        model.train(EPOCHS, data, callbacks, resume_from=checkpoint)


def kill(run_context):
    os.kill(os.getpid(), signal.SIGKILL)


def forked(work):
    """Runs work in a child process; returns its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def trial(folder, kind, hook, step, asynchronous):
    """Kills a training, resumes it, kills that as well, resumes again; returns exit statuses and what it ended in."""
    result, statuses = folder.parent / f"{folder.name}.result", []

    def work(number, disturbance):
        # Where the kill came before the first file, training starts anew, and else it has to find its seed itself.
        latest = latest_checkpoint(folder, "run")
        seed = 0 if latest is None else 1 + number
        result.write_text(run(kind, folder, latest, disturbance, seed=seed, async_save=asynchronous))

    for number, disturbance in enumerate((At(hook, step, kill), At(hook, STEPS - 1, kill), None)):
        statuses.append(forked(lambda number=number, disturbance=disturbance: work(number, disturbance)))
    return statuses, result.read_text()


def main(folder):
    # PyTorch imports much of itself at the first optimizer step; the children inherit it.
    run("shuffled", folder / "warm", steps=STEPS)
    kinds = [*KINDS, "workers"]
    result = folder / "reference.result"
    expected = {}
    for kind in kinds:
        assert forked(lambda kind=kind: result.write_text(run(kind, folder / f"{kind} reference", steps=STEPS))) == 0
        expected[kind] = result.read_text()
    outcomes = []
    for number in range(10):
        kind, choose = kinds[number % len(kinds)], random.Random(number)
        hook = choose.choice(["on_train_step_begin", "on_train_step_end"])
        step, asynchronous = choose.randint(1, STEPS - 2), choose.random() < 0.5
        statuses, ended = trial(folder / f"trial {number}", kind, hook, step, asynchronous)
        outcomes.append([kind, hook, step, asynchronous, statuses, ended == expected[kind]])
    sys.stdout.write(json.dumps(outcomes))


@pytest.mark.slow
@pytest.mark.timeout(300)  # 35 trainings in processes of their own
def test_killed_at_ten_random_steps(tmp_path):
    """The seeds are the numbers of the trials."""
    places = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    outcomes = json.loads(run_python("-W", "error", __file__, tmp_path, patience=300, env=places))
    assert len(outcomes) == 10
    for *what, statuses, equal in outcomes:
        assert statuses == [-signal.SIGKILL, -signal.SIGKILL, 0], what
        assert equal, what


if __name__ == "__main__":
    main(Path(sys.argv[1]))
