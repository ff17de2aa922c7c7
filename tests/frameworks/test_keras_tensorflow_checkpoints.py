"""Checkpoints of TensorFlow (.index, .data-...) that Keras 2 itself wrote, read into networks of Keras 3."""

from importlib.util import find_spec

import numpy as np
import pytest
from cases import assert_imported
from keras_cases import BACK_END, data, keras, layers, small_model

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.networks.readers import read_network
from collectors.weights.foreign_checkpoint import read_checkpoint

EPOCHS = (1, 2, 3, 4, 5)
written_here = pytest.mark.skipif(
    BACK_END != "tensorflow" or find_spec("tf_keras") is None, reason="needs TensorFlow and its Keras 2 (tf_keras)"
)


def sequential(library):
    return [
        library.layers.Dense(8),
        library.layers.BatchNormalization(),
        library.layers.Activation("tanh"),
        library.layers.Dense(4, activation="softmax"),
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a checkpoint of each epoch of a training with Keras 2, and its loss then."""
    import tf_keras

    folder, losses = tmp_path_factory.mktemp("tensorflow"), []
    inputs, targets = data()
    tf_keras.utils.set_random_seed(0)
    model = tf_keras.Sequential([tf_keras.Input((6,)), *sequential(tf_keras)])
    model.compile(tf_keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
    for epoch in EPOCHS:
        model.fit(inputs, targets, batch_size=10, verbose=0)
        losses.append(model.evaluate(inputs, targets, batch_size=50, verbose=0))
        model.save_weights(folder / f"cp-{epoch:04d}.ckpt")
    return folder, losses


def compiled():
    model = keras.Sequential([keras.Input((6,)), *sequential(keras)])
    model.compile(loss="sparse_categorical_crossentropy")
    return model


@written_here
def test_each_epoch_is_imported_and_measured(trained, tmp_path):
    folder, losses = trained
    network, samples = compiled(), data()
    before = read_network(network)
    run = import_checkpoints(tmp_path / "run", folder, network=network)
    for name, values in read_network(network).items():
        np.testing.assert_array_equal(values, before[name])
    # As TensorFlow calls them.
    names = [folder / f"cp-{epoch:04d}.ckpt" for epoch in EPOCHS]
    states = {epoch: read_checkpoint(name, network=network).tensors for epoch, name in zip(EPOCHS, names, strict=True)}
    assert sorted(import_checkpoints(tmp_path / "named", names, network=network).metadata.files) == list(EPOCHS)

    def callback_fn():
        model = compiled()
        return model, model, samples, {}

    assert_imported(run, "keras", states, callback_fn, losses)


def with_nested_layers(library):
    left, right = library.Input((3,)), library.Input((3,))
    inner = library.Sequential(
        [library.Input((3,)), library.layers.Dense(5, activation="tanh"), library.layers.Dense(5)]
    )
    joined = library.layers.Concatenate()([inner(left), library.layers.Dense(5)(right)])
    return library.Model([left, right], library.layers.Dense(4)(library.layers.LayerNormalization()(joined)))


def recurrent(library):
    steps = [
        library.layers.Embedding(10, 4),
        library.layers.Bidirectional(library.layers.LSTM(3, return_sequences=True)),
        library.layers.GRU(3),
        library.layers.Dense(2),
    ]
    return library.Sequential([library.Input((5,)), *steps])


def of_attributes(library):
    class Attending(library.Model):
        def __init__(self):
            super().__init__()
            self.first = library.layers.Dense(2)
            self.blocks = [library.layers.Dense(2), library.layers.MultiHeadAttention(2, 2)]

        def call(self, inputs):
            found = self.blocks[0](self.first(inputs))
            return self.blocks[1](found, found)

    model = Attending()
    model(np.zeros((1, 3, 2), "float32"))
    return model


INPUTS = {
    with_nested_layers: [np.linspace(-1, 1, 12).reshape(4, 3), np.linspace(2, -1, 12).reshape(4, 3)],
    recurrent: np.arange(20).reshape(4, 5) % 10,
    of_attributes: np.linspace(-1, 1, 24, dtype="float32").reshape(4, 3, 2),
}


@written_here
@pytest.mark.parametrize("make", INPUTS)
def test_a_network_of_keras_3_computes_what_that_of_keras_2_did(make, tmp_path):
    import tf_keras

    old, new = make(tf_keras), make(keras)
    new.set_weights([np.zeros_like(values) for values in new.get_weights()])
    old.save_weights(tmp_path / "weights")
    found = read_checkpoint(tmp_path / "weights.index", network=new).tensors
    assert any(not np.array_equal(found[name], values) for name, values in read_network(new).items())
    from collectors.networks.keras_network import named_variables

    for info, variable in named_variables(new):
        variable.assign(found[info.name])
    inputs = INPUTS[make]
    np.testing.assert_allclose(np.asarray(new(inputs)), np.asarray(old(inputs)), rtol=1e-5, atol=1e-6)


@written_here
def test_the_variables_of_a_saved_model(tmp_path):
    import tf_keras

    old, new = with_nested_layers(tf_keras), with_nested_layers(keras)
    old.compile("adam", "mse")
    old.fit(INPUTS[with_nested_layers], np.zeros((4, 4)), verbose=0)
    old.save(tmp_path / "saved", save_format="tf")
    found = read_checkpoint(tmp_path / "saved" / "variables" / "variables.index", network=new).tensors
    np.testing.assert_array_equal(list(found.values())[-1], old.weights[-1].numpy())


def wider():
    return keras.Sequential([keras.Input((7,)), *sequential(keras)])


def deeper():
    return keras.Sequential([keras.Input((6,)), *sequential(keras), layers.Dense(3)])


@written_here
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (wider, r"cp-0001\.ckpt\.index cannot be read into the network Sequential .*shape"),
        (lambda: recurrent(keras), r"holds 'layer_with_weights-0/bias', where the network has no variable"),
        (deeper, r"it holds nothing for .*/kernel, .*/bias\)"),
    ],
)
def test_what_does_not_fit_is_named(trained, tmp_path, make, match):
    with pytest.raises(CheckpointError, match=match):
        import_checkpoints(tmp_path / "run", trained[0], network=make())
    assert not (tmp_path / "run").exists()


@written_here
@pytest.mark.parametrize(
    ("file", "damage", "match"),
    [
        ("index", lambda content: b"", "is damaged"),
        ("index", lambda content: content[:-20], "is damaged"),
        ("data-00000-of-00001", lambda content: content[:50], "is damaged"),
        ("data-00000-of-00001", None, "which is not beside it; copy both"),
    ],
    ids=["empty", "cut", "little data", "no data"],
)
def test_damaged_checkpoints_are_named(trained, file, damage, match, tmp_path):
    for epoch in EPOCHS[:3]:
        for path in trained[0].glob(f"cp-{epoch:04d}*"):
            content = path.read_bytes()
            (tmp_path / path.name).write_bytes(content)
            if epoch == 2 and path.name.endswith(file):
                (tmp_path / path.name).write_bytes(damage(content)) if damage else (tmp_path / path.name).unlink()
    with pytest.raises(CheckpointError, match=rf"cp-0002\.ckpt\.index.*{match}"):
        import_checkpoints(tmp_path / "run", tmp_path, network=compiled())
    assert not (tmp_path / "run").exists()


@written_here
def test_each_flipped_byte_of_the_index_is_found_or_harmless(trained, tmp_path):
    network = compiled()
    whole = read_checkpoint(trained[0] / "cp-0001.ckpt.index", network=network).tensors
    for path in trained[0].glob("cp-0001*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index = tmp_path / "cp-0001.ckpt.index"
    content, refused = index.read_bytes(), 0
    for place in range(0, len(content), 7):
        index.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            found = read_checkpoint(index, network=network).tensors
        except CheckpointError:
            refused += 1
        else:
            for name, values in whole.items():
                np.testing.assert_array_equal(found[name], values)
    assert refused > 20


@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="TensorFlow is installed here")
def test_without_tensorflow_an_error_names_it(tmp_path):
    paths = [tmp_path / f"cp-{epoch}.ckpt.index" for epoch in EPOCHS]
    for path in paths:
        path.write_bytes(b"\0" * 100)
    with pytest.raises(
        CheckpointError, match=r"cp-1\.ckpt\.index was written by TensorFlow.*pip install tensorflow-cpu"
    ):
        import_checkpoints(tmp_path / "run", paths, network=small_model())
