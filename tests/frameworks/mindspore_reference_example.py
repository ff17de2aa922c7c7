"""The example of MindSpore's SummaryLandscape page (2.10), with our imports, our data set and ``train`` set to True.

Its comments are left out; ``LeNet5`` is MindSpore's own (docs/mindspore/code/lenet.py), the data set scikit-learn's
digits at MNIST's size and normalization. The execution mode comes as the script's argument.
"""

import sys

import mindspore as ms
import mindspore.dataset as ds
import mindspore.nn as nn
import numpy as np
from mindspore.common.initializer import Normal
from mindspore.train import Accuracy, Loss, Model
from sklearn.datasets import load_digits

from collectors.mindspore import SummaryCollector
from landscape import SummaryLandscape


class LeNet5(nn.Cell):
    def __init__(self, num_class=10, num_channel=1, include_top=True):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.include_top = include_top
        if self.include_top:
            self.flatten = nn.Flatten()
            self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
            self.fc2 = nn.Dense(120, 84, weight_init=Normal(0.02))
            self.fc3 = nn.Dense(84, num_class, weight_init=Normal(0.02))

    def construct(self, x):
        x = self.conv1(x)
        x = self.relu(x)
        x = self.max_pool2d(x)
        x = self.conv2(x)
        x = self.relu(x)
        x = self.max_pool2d(x)
        if not self.include_top:
            return x
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


def create_dataset(batch_size=32):
    images, labels = (part[:256] for part in load_digits(return_X_y=True))
    images = np.kron(images.reshape(-1, 1, 8, 8), np.ones((4, 4))) / 16.0
    columns = {"image": ((images - 0.1307) / 0.3081).astype(np.float32), "label": labels.astype(np.int32)}
    # Shuffled, as the page's MNIST is.
    digits = ds.NumpySlicesDataset(columns)
    digits = digits.shuffle(buffer_size=10000)
    return digits.batch(batch_size, drop_remainder=True)


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE if sys.argv[1] == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    ds_train = create_dataset()
    network = LeNet5()
    net_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    net_opt = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(network, net_loss, net_opt, metrics={"Accuracy": Accuracy()})
    interval_1 = [1, 2, 3, 4, 5]
    summary_collector = SummaryCollector(
        summary_dir="./summary/lenet_interval_1",
        collect_specified_data={
            "collect_landscape": {
                "landscape_size": 4,
                "unit": "step",
                "create_landscape": {"train": True, "result": False},
                "num_samples": 2048,
                "intervals": [interval_1],
            }
        },
    )
    model.train(1, ds_train, callbacks=[summary_collector], dataset_sink_mode=False)

    def callback_fn():
        network = LeNet5()
        net_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        metrics = {"Loss": Loss()}
        model = Model(network, net_loss, metrics=metrics)
        ds_eval = create_dataset()
        return model, network, ds_eval, metrics

    summary_landscape = SummaryLandscape("./summary/lenet_interval_1")
    summary_landscape.gen_landscapes_with_multi_process(
        callback_fn,
        collect_landscape={
            "landscape_size": 4,
            "create_landscape": {"train": True, "result": False},
            "num_samples": 2048,
            "intervals": [interval_1],
        },
        device_ids=[1],
    )
