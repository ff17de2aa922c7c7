"""Files of weights that Keras itself wrote while it trained, imported and measured."""

import io
import shutil
import zipfile

import h5py
import numpy as np
import pytest
from cases import assert_imported
from keras_cases import QUIET, data, keras, small_model, two_inputs

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.networks.readers import read_network
from collectors.weights.foreign_checkpoint import read_checkpoint

pytestmark = QUIET
ENDINGS = (".weights.h5", ".keras", ".h5")
EPOCHS = (1, 2, 3, 4, 5)


def save(model, path):
    if path.name.endswith(".weights.h5"):
        model.save_weights(path)
    else:
        model.save(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with files of each kind, and what the network had at each epoch."""
    folder, states = tmp_path_factory.mktemp("keras"), []
    inputs, targets = data()
    model = small_model(dropout=False)
    for epoch in EPOCHS:
        model.fit(inputs, targets, batch_size=10, verbose=0)
        states.append((read_network(model), model.evaluate(inputs, targets, batch_size=50, verbose=0)[0]))
        for ending in ENDINGS:
            save(model, folder / f"ep_{epoch}{ending}")
    return folder, states


@pytest.mark.filterwarnings("ignore:the training's final checkpoint")
@pytest.mark.parametrize("ending", ENDINGS)
def test_each_kind_is_imported_and_measured(trained, ending, tmp_path):
    folder, states = trained
    network, inputs = small_model(seed=5, dropout=False), data()
    before = read_network(network)
    run = import_checkpoints(tmp_path / "run", str(folder / f"ep_[0-9]{ending}"), network=network)
    for name, values in read_network(network).items():
        np.testing.assert_array_equal(values, before[name])

    def callback_fn():
        model = small_model(dropout=False)
        return model, model, inputs, {}

    found = {epoch: state for epoch, (state, _) in zip(EPOCHS, states, strict=True)}
    assert_imported(run, "keras", found, callback_fn, [loss for _, loss in states])


def test_a_folder_holds_them_beside_other_files(trained, tmp_path):
    for ending in (".weights.h5", ".h5"):
        for epoch in EPOCHS:
            shutil.copy(trained[0] / f"ep_{epoch}{ending}", tmp_path)
    run = import_checkpoints(tmp_path.with_name("of_a_folder"), tmp_path, network=small_model(dropout=False))
    assert sorted(run.metadata.files) == list(EPOCHS), "a name that ends with .h5 alone may be a landscape's"


def test_a_network_is_needed(trained, tmp_path):
    folder, _ = trained
    paths = [folder / f"ep_{epoch}.keras" for epoch in EPOCHS]
    with pytest.raises(CheckpointError, match=r"ep_1\.keras holds weights of Keras, .*network=model.*--function"):
        import_checkpoints(tmp_path / "run", paths)
    with pytest.raises(TypeError, match=r"network must be a built keras.Model, .*, but got dict"):
        import_checkpoints(tmp_path / "run", paths, network={})
    with pytest.raises(CheckpointError, match=r"ep_1\.keras cannot be read into the network Functional"):
        import_checkpoints(tmp_path / "run", paths, network=two_inputs())
    assert not (tmp_path / "run").exists()


def hostile(path, content):
    """Writes a file of Keras whose weights are in an HDF5 file of this content."""
    if path.name.endswith(".keras"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model.weights.h5", content)
    else:
        path.write_bytes(content)


def with_link(secret):
    with h5py.File(buffer := io.BytesIO(), "w") as file:
        file["layers"] = h5py.ExternalLink(str(secret), "/")
    return buffer.getvalue()


def with_claim():
    with h5py.File(buffer := io.BytesIO(), "w") as file:
        file.create_dataset("layers/dense/vars/0", (1 << 40,), "f4", chunks=(1 << 20,), compression="gzip")
    return buffer.getvalue()


@pytest.mark.parametrize("ending", ENDINGS)
def test_hostile_files_are_refused_before_keras_reads_them(ending, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("Keras must not read it")

    monkeypatch.setattr(keras.Model, "load_weights", never)
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["key"] = [1.0, 2.0]
    path = tmp_path / f"ep_1{ending}"
    for content, match in ((with_link(secret), "link to another place"), (with_claim(), "claims 4398046511104 bytes")):
        hostile(path, content)
        with pytest.raises(CheckpointError, match=rf"ep_1.* is damaged or no file of Keras' weights .*{match}"):
            import_checkpoints(tmp_path / "run", [path] * 3, network=small_model(), numbers=[1, 2, 3])


def test_an_archive_that_unpacks_to_more_is_refused(trained, tmp_path):
    path = tmp_path / "ep_1.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(1 << 20))
    with pytest.raises(CheckpointError, match=r"ep_1\.keras is damaged .*claim more bytes than the file has"):
        import_checkpoints(tmp_path / "run", [path] * 3, network=small_model(), numbers=[1, 2, 3])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda content: b"", "empty"),
        (lambda content: content[: len(content) // 2], "damaged"),
        (lambda content: b"version https://git-lfs.github.com/spec/v1", "pointer of Git LFS"),
    ],
    ids=["empty", "cut", "pointer"],
)
def test_damaged_files_are_named(trained, ending, damage, match, tmp_path):
    path = tmp_path / f"ep_2{ending}"
    path.write_bytes(damage((trained[0] / f"ep_2{ending}").read_bytes()))
    others = [trained[0] / f"ep_{epoch}{ending}" for epoch in (1, 3, 4, 5)]
    with pytest.raises(CheckpointError, match=rf"ep_2.*{match}"):
        import_checkpoints(tmp_path / "run", [path, *others], network=small_model(dropout=False))
    assert not (tmp_path / "run").exists()


def test_nothing_but_weights_is_read_from_an_archive(trained, tmp_path):
    """What a file says of layers, lambdas and classes is never looked at."""
    for epoch in EPOCHS:
        with (
            zipfile.ZipFile(trained[0] / f"ep_{epoch}.keras") as source,
            zipfile.ZipFile(tmp_path / f"ep_{epoch}.keras", "w") as target,
        ):
            target.writestr("model.weights.h5", source.read("model.weights.h5"))
            target.writestr("config.json", '{"module": "os", "class_name": "system", "config": "exit 3"}')
    run = import_checkpoints(tmp_path / "run", tmp_path, network=small_model(dropout=False))
    found = read_checkpoint(run.checkpoint_path(2)).tensors
    np.testing.assert_array_equal(found["dense/kernel"], trained[1][1][0]["dense/kernel"])
