"""MindSpore: networks in both execution modes, and the callback of ``Model.train``."""

import functools

import mindspore
import mindspore.dataset as pipelines
import numpy as np
from cases import CollectorCase, Crash, EvaluatorCase
from mindspore import nn
from mindspore.train import Accuracy, Callback, CheckpointConfig, Loss, Model, ModelCheckpoint

from collectors.mindspore import SummaryCollector

MODES = {"graph": mindspore.GRAPH_MODE, "pynative": mindspore.PYNATIVE_MODE}
FOUR_STEPS = {"unit": "step", "intervals": [[1, 2, 3, 4]], "landscape_size": 3, "num_samples": 48}
TWO_EPOCHS = {"unit": "epoch", "intervals": [[0, 1, 2]]}


def set_mode(name):
    mindspore.set_context(mode=MODES[name])


class ConvNet(nn.Cell):
    """Convolution, BatchNorm, dropout and a dense layer on images of 8 x 8; weights from a seed of its own."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, pad_mode="valid", has_bias=True)
        self.normalization = nn.BatchNorm2d(4)
        self.activation = nn.Tanh()  # MindSpore's ReLU makes 0 of NaN on a CPU
        self.dropout = nn.Dropout(p=0.5)
        self.flatten = nn.Flatten()
        self.classifier = nn.Dense(4 * 6 * 6, 5)
        generator = np.random.default_rng(0)
        for _, parameter in self.parameters_and_names():
            value = generator.normal(scale=0.3, size=parameter.shape).astype(np.float32)
            spread = parameter.name.endswith(("gamma", "moving_variance"))
            parameter.set_data(mindspore.Tensor(np.abs(value) + 0.5 if spread else value))

    def construct(self, images):
        hidden = self.activation(self.normalization(self.convolution(images)))
        return self.classifier(self.dropout(self.flatten(hidden)))


def arrays(count, seed=3):
    generator = np.random.default_rng(seed)
    images = generator.normal(size=(count, 1, 8, 8)).astype(np.float32)
    return {"image": images, "label": generator.integers(0, 5, count).astype(np.int32)}


def dataset(count=48, batch_size=16, *, shuffle=False):
    return pipelines.NumpySlicesDataset(arrays(count), shuffle=shuffle).batch(batch_size)


def sparse_loss(reduction="mean"):
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction=reduction)


def without_dropout():
    network = ConvNet()
    network.dropout = nn.Dropout(p=0.0)  # its random state is in no checkpoint
    return network


def model_of(network, loss=None, metrics=None):
    optimizer = nn.Momentum(network.trainable_params(), 0.05, 0.9)
    return Model(network, loss or sparse_loss(), optimizer, metrics=metrics)


def build(mode, shuffle=False):
    set_mode(mode)
    network, metrics = ConvNet(), {"Loss": Loss(), "accuracy": Accuracy()}
    # With an optimizer, as a training has it: measuring must not use it.
    return model_of(network, metrics=metrics), network, dataset(shuffle=shuffle), metrics


class WithOwnLoss(nn.Cell):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.loss = sparse_loss()

    def construct(self, images, labels):
        return self.loss(self.network(images), labels)


def build_with_own_loss():
    set_mode("pynative")
    network = WithOwnLoss(ConvNet())
    return Model(network), network, dataset(), {}


def own_loss(built):
    _, network, data, _ = built
    if isinstance(network, WithOwnLoss):
        network = network.network
    return model_of(network, metrics={"Loss": Loss()}).eval(data)["Loss"]


def freeze(network):
    getattr(network, "network", network).classifier.weight.requires_grad = False
    return "classifier.weight"


def freeze_all(network):
    for parameter in network.trainable_params():
        parameter.requires_grad = False


def restored(network):
    modes = [(cell.training, cell.phase, cell.requires_grad) for _, cell in network.cells_and_names()]
    return modes, [parameter.requires_grad for parameter in network.get_parameters()]


EVALUATOR_CASES = [
    EvaluatorCase(
        name=name,
        build=make,
        own_loss=own_loss,
        freeze=freeze,
        freeze_all=freeze_all,
        restored=restored,
        recalibrate="done",
    )
    for name, make in (
        ("MindSpore graph", functools.partial(build, "graph")),
        ("MindSpore PyNative", functools.partial(build, "pynative", shuffle=True)),
        ("MindSpore's network computes its loss", build_with_own_loss),
    )
]


class CrashAfter(Callback):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == self.steps:
            raise Crash


def train(mode, summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    set_mode(mode)
    model = model_of(without_dropout())
    callbacks = [SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)]
    start = 0
    if checkpoint is not None and crash_after is not None:
        config = CheckpointConfig(save_checkpoint_steps=4, keep_checkpoint_max=1)
        callbacks.append(ModelCheckpoint(prefix="own", directory=str(checkpoint), config=config))
    elif checkpoint is not None:
        (path,) = checkpoint.glob("*.ckpt")
        saved = mindspore.load_checkpoint(str(path))
        for part in (model._network, model._optimizer):
            mindspore.load_param_into_net(part, saved)
        start = 1
    if crash_after is not None:
        callbacks.append(CrashAfter(crash_after))
    model.train(3, dataset(32, 8), callbacks=callbacks, dataset_sink_mode=False, initial_epoch=start)


COLLECTOR_CASES = [
    CollectorCase(name, lambda *arguments, mode=mode, **options: train(mode, *arguments, **options))
    for name, mode in (("MindSpore graph", "graph"), ("MindSpore PyNative", "pynative"))
]
