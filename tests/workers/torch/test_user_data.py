"""What users have as data: NumPy pairs, dictionaries, several inputs, lists of samples, lists of images, graphs."""

import contextlib
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, StackDataset, TensorDataset, default_collate
from worker_cases import at_point, evaluator_of, plane_of, values_at

from collectors.networks.batches import map_leaves
from workers import OwnLoss
from workers.errors import CallbackFunctionError, SamplesError
from workers.evaluator import SampleMemory
from workers.pools.first_call import FirstCall

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(50, 1, 4, 4, generator=GENERATOR)
CLASSES = torch.randint(0, 3, (50,), generator=GENERATOR)
POINT = (0.3, -0.4)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def value_of(loss, net, dataset, metrics=None, **options):
    return values_at(evaluator_of(loss, net, dataset, metrics, **options), net, POINT)


def moved(net):
    return at_point(net, plane_of(net), POINT)


def loss_at_the_point(dataset, net=None):
    """Returns the values of a network of images and classes."""
    return value_of(nn.CrossEntropyLoss(), net or network(), dataset)[0]


@pytest.mark.parametrize("float_type", [np.float32, np.float64])
@pytest.mark.parametrize("int_type", [np.int64, np.int32, np.uint8])
def test_numpy_pairs_are_taken_like_tensors(float_type, int_type):
    images, classes = IMAGES.numpy().astype(float_type), CLASSES.numpy().astype(int_type)
    found, description = value_of(nn.CrossEntropyLoss(), network(), (images, classes))
    expected, plain = value_of(nn.CrossEntropyLoss(), network(), (IMAGES, CLASSES))
    assert found == expected
    assert description.samples_sha256 == plain.samples_sha256, "they are the same samples"
    text = " ".join(description.notes)
    assert ("inputs of float64 were converted to float32" in text) == (float_type is np.float64)


def test_regression_targets_and_a_network_in_float64():
    torch.manual_seed(0)
    targets = np.random.default_rng(0).normal(size=(50, 3))
    for dtype in (torch.float32, torch.float64):
        net = network().to(dtype)
        found, _ = value_of(nn.MSELoss(), net, (IMAGES.double().numpy(), targets))
        expected = functional.mse_loss(moved(net)(IMAGES.to(dtype)), torch.from_numpy(targets).to(dtype)).item()
        assert found["loss"] == pytest.approx(expected, rel=1e-5)


def test_read_only_and_reversed_arrays_are_read():
    images = IMAGES.numpy()[::-1]
    images.flags.writeable = False
    found = loss_at_the_point((images, CLASSES.numpy()[::-1]))
    assert found == loss_at_the_point((IMAGES.flip(0), CLASSES.flip(0)))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tower = nn.Sequential(nn.Flatten(), nn.Linear(16, 5))

    def forward(self, left, right):
        return (self.tower(left) - self.tower(right)).square().sum(1)


class WithMask(Siamese):
    def forward(self, left, mask=None):
        return self.tower(left).sum(1) if mask is None else (self.tower(left).sum(1) * mask)


SAME = (CLASSES.flip(0) == CLASSES).float()
SIAMESE = {
    "nested pair of all samples": ((IMAGES, IMAGES.flip(0)), SAME),
    "nested NumPy pair": ((IMAGES.numpy(), IMAGES.flip(0).numpy()), SAME.numpy()),
    "pair of a dict": ({"left": IMAGES, "right": IMAGES.flip(0)}, SAME),
    "tuples of three": DataLoader(TensorDataset(IMAGES, IMAGES.flip(0), SAME), batch_size=8),
    "dictionaries": DataLoader(StackDataset(left=IMAGES, right=IMAGES.flip(0), same=SAME), batch_size=8),
}


UNDERSTOOD = {
    "tuples of three": "the network gets the first 2 (left, right), and the loss gets the last one as targets",
    "dictionaries": "the network gets left, right by name, and the loss gets 'same' as targets",
}


@pytest.mark.parametrize("kind", SIAMESE)
def test_two_inputs_in_every_form(kind):
    net = Siamese()
    understood = UNDERSTOOD.get(kind, "").partition(" (")[0]
    with pytest.warns(UserWarning, match=f"batches are .*{understood}") if understood else contextlib.nullcontext():
        found, description = value_of(nn.BCEWithLogitsLoss(), net, SIAMESE[kind])
    expected = functional.binary_cross_entropy_with_logits(moved(net)(IMAGES, IMAGES.flip(0)), SAME).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["loss_stderr"] > 0
    assert description.num_samples == 50
    told = [note for note in description.notes if "Return an OwnLoss in place of the loss" in note]
    assert len(told) == (kind in UNDERSTOOD), "what is understood is said"
    assert not told or UNDERSTOOD[kind] in told[0]


AMBIGUOUS = {
    "sample weights": (network(), TensorDataset(IMAGES, CLASSES, torch.rand(50))),
    "an optional second input": (WithMask(), TensorDataset(IMAGES, SAME, torch.rand(50))),
    "names of other kinds": (network(), StackDataset(image=IMAGES, label=CLASSES)),
    "two that are left": (Siamese(), StackDataset(left=IMAGES, right=IMAGES, label=CLASSES, index=CLASSES)),
    "one that is lacking": (Siamese(), StackDataset(left=IMAGES, label=CLASSES)),
    "no targets": (network(), TensorDataset(IMAGES)),
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_what_is_in_doubt_is_an_error_that_shows_own_loss(kind):
    net, dataset = AMBIGUOUS[kind]
    with pytest.raises(SamplesError, match=r"(?s)from workers import OwnLoss.*def step.network, batch.*return OwnLoss"):
        value_of(nn.CrossEntropyLoss(), net, DataLoader(dataset, batch_size=10))


def test_the_error_for_a_dictionary_shows_its_own_keys():
    samples = StackDataset(image=IMAGES, label=CLASSES)
    with pytest.raises(SamplesError, match="gave a dict of 'image', 'label'") as error:
        value_of(nn.CrossEntropyLoss(), network(), DataLoader(samples, batch_size=10))
    code = [line[4:] for line in str(error.value).splitlines() if line.startswith("    ") and "..." not in line]
    assert "    outputs = network(batch['image'])" in code
    names = {"loss": functional.cross_entropy}
    exec("\n".join(code), names)  # what it shows runs
    found, _ = value_of(OwnLoss(names["step"]), network(), DataLoader(samples, batch_size=10))
    assert found["loss"] == pytest.approx(loss_at_the_point((IMAGES, CLASSES))["loss"], rel=1e-6)


def test_a_network_that_is_called_otherwise_is_told_of_own_loss():
    pairs = DataLoader(TensorDataset(IMAGES, IMAGES.flip(0)), batch_size=10)
    with pytest.raises(CallbackFunctionError, match=r"required positional argument: 'right'.*return an OwnLoss"):
        value_of(nn.MSELoss(), Siamese(), pairs)


SINGLE = [(x, int(y)) for x, y in zip(IMAGES, CLASSES, strict=True)]
WRAP = r"wrap a data set of single samples in a DataLoader.dataset, batch_size=128."
HALVES = [(IMAGES.numpy()[part], CLASSES.numpy()[part]) for part in (slice(25), slice(25, None))]
REFUSED = {
    "arrays that are no numbers": ((IMAGES.numpy(), np.array(["cat"] * 50)), "numbers, but holds one of <U3"),
    "unequal lengths": ((IMAGES.numpy(), CLASSES.numpy()[:49]), "50 inputs and 49 targets"),
    "batches of NumPy": (HALVES, r"gave NumPy arrays: convert them .torch.from_numpy.*let a DataLoader"),
    "what only looks like a graph": ([SimpleNamespace(x=IMAGES, num_graphs=3)], "gave a SimpleNamespace"),
    "a class as a number": (SINGLE, WRAP),
    "a class as a tensor": (list(zip(IMAGES, CLASSES, strict=True)), WRAP),
    "a class of NumPy": (list(zip(IMAGES.numpy(), CLASSES.numpy(), strict=True)), WRAP),
    "a vector as the target": ([(x, torch.zeros(3)) for x in IMAGES], WRAP),
    "texts": ([("a text", 1), ("another", 0)], WRAP),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_says_what_to_do(kind):
    dataset, text = REFUSED[kind]
    with pytest.raises(SamplesError, match=text):
        loss_at_the_point(dataset)


def test_a_list_of_samples_in_a_data_loader_is_measured():
    assert loss_at_the_point(DataLoader(SINGLE, batch_size=128)) == loss_at_the_point((IMAGES, CLASSES))


class Detector(nn.Module):
    """Called as torchvision's detection networks are: lists of images and of dictionaries; losses in train mode."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(3, 4)

    def forward(self, images, targets=None):
        boxes = torch.stack([self.head(image.mean((1, 2))) for image in images])
        if not self.training:
            return [{"boxes": box[None]} for box in boxes]
        wanted = torch.stack([target["boxes"].mean(0) for target in targets])
        return {"loss_box": functional.l1_loss(boxes, wanted), "loss_size": boxes.square().mean()}


def detection_samples():
    generator = torch.Generator().manual_seed(3)

    def sample(index):
        image = torch.rand(3, 8 + index, 9, generator=generator)
        boxes = torch.rand(1 + index % 3, 4, generator=generator)
        return image, {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.long)}

    return [sample(index) for index in range(7)]


def detection_step(network, batch):
    images, targets = batch
    network.train()  # its losses come in this mode alone
    losses = network(images, targets)
    network.eval()
    return sum(losses.values())


@pytest.mark.parametrize("batch_size", [3, 4, 7])  # three images have three channels
@pytest.mark.filterwarnings("ignore:loss is measured in lists or graphs")
def test_detection_targets_are_counted_by_image(batch_size):
    net, samples = Detector(), detection_samples()
    loader = DataLoader(samples, batch_size=batch_size, collate_fn=lambda items: tuple(zip(*items, strict=True)))
    found, description = value_of(OwnLoss(detection_step), net, loader)
    assert description.num_samples == 7
    there, total = moved(net), 0.0
    for start in range(0, 7, batch_size):
        part = samples[start : start + batch_size]
        total += len(part) * detection_step(there, tuple(zip(*part, strict=True))).item()
    assert found["loss"] == pytest.approx(total / 7, rel=1e-6)


def test_batches_that_cannot_be_cut_are_used_whole_and_that_is_said():
    samples = detection_samples()
    batches = [tuple(zip(*samples[start : start + 3], strict=True)) for start in (0, 3)]
    _, description = value_of(OwnLoss(detection_step), Detector(), batches, num_samples=4)
    assert description.num_samples == 6
    assert any("6 samples are used, because the data set's last batch cannot be cut" in x for x in description.notes)


def graphs(count=11):
    data = pytest.importorskip("torch_geometric.data")
    generator = torch.Generator().manual_seed(4)

    def graph(index):
        nodes = 3 + index % 4
        edges = torch.randint(0, nodes, (2, 2 * nodes), generator=generator)
        x = torch.randn(nodes, 5, generator=generator)
        return data.Data(x=x, edge_index=edges, y=torch.tensor([index % 3]), name=f"graph {index}")

    return [graph(index) for index in range(count)]


def loader_of(samples, batch_size=4):
    return pytest.importorskip("torch_geometric.loader").DataLoader(samples, batch_size=batch_size)


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        from torch_geometric.nn import GCNConv, global_mean_pool

        torch.manual_seed(0)
        with warnings.catch_warnings():
            # PyTorch Geometric 2.8 reads annotations in a way that Python 3.14 deprecates.
            warnings.filterwarnings("ignore", "Failing to pass a value to the 'type_params'", DeprecationWarning)
            self.first, self.second, self.pool = GCNConv(5, 8), GCNConv(8, 3), global_mean_pool

    def forward(self, graph):
        hidden = self.first(graph.x, graph.edge_index).relu()
        return self.pool(self.second(hidden, graph.edge_index), graph.batch)


def graph_step(network, batch):
    outputs = network(batch)
    return functional.cross_entropy(outputs, batch.y), outputs


def right_classes(outputs, batch):
    return (outputs.argmax(1) == batch.y).float().mean()


@pytest.mark.parametrize("batch_size", [3, 4, 11])
@pytest.mark.filterwarnings(
    "ignore:loss is measured in lists or graphs", "ignore:metric 'accuracy' is measured in lists or graphs"
)
def test_batches_of_graphs(batch_size):
    samples = graphs()
    loader = loader_of(samples, batch_size)
    net = GraphNetwork()
    found, description = value_of(OwnLoss(graph_step), net, loader, {"accuracy": right_classes})
    there = moved(net)
    with torch.no_grad():
        losses, shares, sizes = zip(
            *((graph_step(there, batch)[0].item(), right_classes(there(batch), batch).item(), len(batch.y))
              for batch in loader), strict=True,
        )  # fmt: skip
    assert description.num_samples == 11
    assert found["loss"] == pytest.approx(np.average(losses, weights=sizes), rel=1e-5)
    assert found["accuracy"] == pytest.approx(np.average(shares, weights=sizes), rel=1e-6)

    def digest():
        return evaluator_of(OwnLoss(graph_step), GraphNetwork(), loader).description.samples_sha256

    assert digest() == description.samples_sha256
    samples[2].x[0, 0] += 1
    assert digest() != description.samples_sha256


@pytest.mark.filterwarnings("ignore:loss is measured in lists or graphs")
def test_a_network_may_write_into_its_graph():
    class Writes(GraphNetwork):
        def forward(self, graph):
            graph.x = self.first(graph.x, graph.edge_index).relu()
            return self.pool(self.second(graph.x, graph.edge_index), graph.batch)

    loader = loader_of(graphs())
    plain, _ = value_of(OwnLoss(graph_step), net := GraphNetwork(), loader)
    writes = Writes()
    writes.load_state_dict(net.state_dict())
    assert value_of(OwnLoss(graph_step), writes, loader)[0] == plain


def loss_of(model, images, batch):
    return functional.cross_entropy(model(images), batch["classes"])


def of_a_hundredth(model, batch):
    return loss_of(model, batch["images"] / 100, batch)


def divides_in_place(model, batch):
    batch["images"] /= 100
    return loss_of(model, batch["images"], batch)


def puts_it_back_smaller(model, batch):
    batch["images"] = batch["images"] / 100
    return loss_of(model, batch["images"], batch)


def takes_it_out(model, batch):
    return loss_of(model, batch.pop("images") / 100, batch)


def ragged(items):
    """Returns a batch that does not fit together with the others, so that it is never cut."""
    batch = default_collate(items)
    return {**batch, "more": torch.zeros(len(items), int(batch["classes"].sum()))}


@pytest.mark.parametrize("step", [divides_in_place, puts_it_back_smaller, takes_it_out])
@pytest.mark.parametrize("collate", [default_collate, ragged])
def test_what_a_step_does_to_its_batch_is_undone_before_the_next_pass(step, collate):
    loader = DataLoader(StackDataset(images=50 * IMAGES, classes=CLASSES), batch_size=16, collate_fn=collate)
    expected = value_of(OwnLoss(of_a_hundredth), network(), loader)[0]
    assert value_of(OwnLoss(step), network(), loader)[0] == expected


@pytest.mark.filterwarnings("ignore:the samples take more memory")
@pytest.mark.parametrize("step", [divides_in_place, puts_it_back_smaller, takes_it_out])
def test_what_a_step_does_to_a_batch_that_is_read_once_for_several_points_is_undone_before_the_next(step):
    loader = DataLoader(StackDataset(images=50 * IMAGES, classes=CLASSES), batch_size=16)

    def losses(function):
        evaluator = evaluator_of(OwnLoss(function), net := network(), loader, memory=SampleMemory(limit=1000))
        evaluator.load(*plane_of(net))
        return evaluator.measure(np.array([POINT, POINT, (0.0, 0.0)]))["loss"]

    np.testing.assert_array_equal(losses(step), losses(of_a_hundredth))


def test_a_network_may_change_its_inputs_in_place():
    class InPlace(nn.Sequential):
        def forward(self, images):
            return super().forward(images.div_(100))

    given = IMAGES.clone()
    expected = loss_at_the_point((IMAGES / 100, CLASSES))
    assert loss_at_the_point((given, CLASSES), InPlace(*network())) == expected
    assert torch.equal(given, IMAGES), "the user's own tensors stay as they are"


@pytest.mark.filterwarnings("ignore:loss is measured in lists or graphs")
def test_one_graph_and_its_nodes():
    (graph,) = graphs(1)
    graph.y = torch.tensor([0, 1, 2])

    class Nodes(GraphNetwork):
        def forward(self, graph):
            return self.second(self.first(graph.x, graph.edge_index).relu(), graph.edge_index)

    net = Nodes()
    found, description = value_of(OwnLoss(graph_step), net, [graph])
    with torch.no_grad():
        assert found["loss"] == pytest.approx(graph_step(moved(net), graph)[0].item(), rel=1e-5)
    assert description.num_samples == 1


def test_graphs_with_a_loss_of_pairs_are_told_of_own_loss():
    loader = loader_of(graphs())
    with pytest.raises(SamplesError, match=r"(?s)gave a DataBatch.*OwnLoss.*network.batch.x, batch.edge_index"):
        value_of(nn.CrossEntropyLoss(), GraphNetwork(), loader)


@pytest.mark.filterwarnings("ignore:loss is measured in lists or graphs")
def test_graphs_on_a_second_worker_are_those_of_the_first():
    loader, values, memory = loader_of(graphs()), [], SampleMemory(shared=True)
    for _ in range(2):
        loader = pickle.loads(pickle.dumps(loader))
        evaluator = evaluator_of(OwnLoss(graph_step), net := GraphNetwork(), loader, memory=memory)
        memory = SampleMemory((evaluator.description.held,), shared=True)
        values.append(values_at(evaluator, net, POINT)[0])
    assert values[0] == pytest.approx(values[1], rel=1e-6)


class Bags(nn.Module):
    """Bags of tokens, given side by side: the first tensor of a batch numbers tokens, not bags."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.mean = nn.EmbeddingBag(7, 3)

    def forward(self, tokens, starts):
        return self.mean(tokens, starts)


BAGS = [([1], 0), ([2, 3, 4, 5, 6, 0, 1], 1), ([3, 3], 2), ([6, 5, 4, 3, 2], 0), ([0, 2, 1], 1)]


def of_bags(items):
    tokens, classes = zip(*items, strict=True)
    starts = np.cumsum([0, *map(len, tokens)])[:-1]
    return tuple(map(torch.tensor, ([token for bag in tokens for token in bag], starts.tolist(), list(classes))))


def of_time(items):
    """Batches whose first axis is time."""
    images, classes = default_collate(items)
    return images.expand(4, *images.shape), classes


def bag_step(network, batch):
    *inputs, classes = batch
    outputs = network(*inputs)
    return functional.cross_entropy(outputs, classes), outputs


def time_step(network, batch):
    return bag_step(network, (batch[0][0], batch[1]))


def as_float64(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


COUNTED = {
    "bags of tokens": (Bags, bag_step, BAGS, of_bags),
    "time first": (network, time_step, list(TensorDataset(IMAGES[:7], CLASSES[:7])), of_time),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_batches_without_a_loader_must_say_how_many_samples_they_hold(kind):
    make, step, samples, collate = COUNTED[kind]
    net, batches = make(), [collate(samples[:2]), collate(samples[2:])]
    with pytest.raises(SamplesError, match=r"first axes of \d+ and \d+.*OwnLoss\(step, samples=lambda batch"):
        value_of(OwnLoss(step), net, batches)
    found, description = value_of(OwnLoss(step, samples=lambda batch: len(batch[-1])), net, batches)
    assert description.num_samples == len(samples)
    there = moved(net).double()
    losses = [step(there, map_leaves(as_float64, collate([sample])))[0].item() for sample in samples]
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, None])
def test_a_number_of_samples_must_be_one(wrong):
    with pytest.raises(SamplesError, match="samples must return how many samples a batch holds, 1 or more, but"):
        value_of(OwnLoss(bag_step, samples=lambda _: wrong), Bags(), [of_bags(BAGS)])


# The inputs of the first samples, in whatever form the data set and the network have.
X, Y = torch.arange(40.0).reshape(10, 4), torch.arange(10) % 3


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, left, right, scale=1.0, **others):
        return self.layer(left + right) * scale


def example(result, count=4):
    return FirstCall(lambda: result).example(count)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.numpy(), Y.numpy()),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True),
        [(X[:4], Y[:4]), (X[4:], Y[4:])],
        {"train": (X, Y), "test": (X[5:], Y[5:])},
    ],
)
def test_of_pairs(data):
    torch.testing.assert_close(example((nn.CrossEntropyLoss(), nn.Linear(4, 3), data, {})), X[:4])


def test_of_several_inputs():
    left, right = example((nn.CrossEntropyLoss(), Two(), [((X, 2 * X), Y)], {}), 10)
    torch.testing.assert_close((left, right), (X, 2 * X))


def test_of_a_network_that_computes_its_own_loss():
    network = Two().train()

    def step(net, batch):
        return nn.functional.cross_entropy(net(batch["x"], right=2 * batch["x"], more=batch["y"]), batch["y"])

    found = example((OwnLoss(step), network, [{"x": X, "y": Y}], {}), 10)
    assert list(found) == ["left", "right", "more"]
    torch.testing.assert_close(found["right"], 2 * X)
    assert network.training
    assert not network._forward_pre_hooks


def test_what_cannot_be_found():
    def fails(net, batch):
        raise RuntimeError("no such entry")

    for step, text in (
        (fails, "the network's own loss raised RuntimeError: no such entry"),
        (lambda net, batch: net.layer(batch[0]).sum(), "the network's own loss never calls the network itself"),
    ):
        with pytest.raises(CallbackFunctionError, match=text):
            example((OwnLoss(step), Two(), [[X, Y]], {}))
