"""What a run directory takes the place of: its own checkpoints, and no other file."""

import json
import warnings

import numpy as np
import pytest
from runs import collected, names
from safetensors.numpy import save

from collectors import import_checkpoints
from collectors.errors import RunDirectoryError


def test_an_import_replaces_no_run_of_a_training(tmp_path):
    collected(tmp_path / "run")
    kept = names(tmp_path / "run" / "ckpt_dir")
    other, _, _ = collected(tmp_path / "other")
    files = [other.checkpoint_path(number) for number in range(3)]
    with pytest.raises(RunDirectoryError, match=r"holds a run that no import wrote, and was left as it is"):
        import_checkpoints(tmp_path / "run", files, existing="overwrite")
    assert names(tmp_path / "run" / "ckpt_dir") == kept


@pytest.mark.parametrize("existing", ["overwrite", "resume"])
def test_a_foreign_file_map_removes_nothing_else(tmp_path, existing):
    collected(tmp_path / "run")
    folder = tmp_path / "run" / "ckpt_dir"
    (folder / "notes.txt").write_text("mine")
    metadata = folder / "train_metadata.json"
    content = json.loads(metadata.read_text())
    content["model_params_file_map"]["7"] = "notes.txt"
    metadata.write_text(json.dumps(content))
    with warnings.catch_warnings(action="ignore"):
        collected(tmp_path / "run", existing=existing)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("existing", ["error", "overwrite", "resume"])
@pytest.mark.parametrize("content", ["notes", "weights", "broken off"])
def test_what_has_the_name_of_a_checkpoint_stays(tmp_path, existing, content):
    collected(tmp_path / "run")
    folder = tmp_path / "run" / "ckpt_dir"
    (file,) = folder.glob("*_1_*.safetensors")
    (folder / "train_metadata.json").unlink()
    before = {
        "notes": b"my notes " * 20,
        "weights": save({"weight": np.ones(3, np.float32)}),
        "broken off": b"        {",
    }
    for path in folder.glob("*.safetensors"):
        path.unlink()
    file.write_bytes(before[content])
    if (content, existing) == ("broken off", "overwrite"):
        collected(tmp_path / "run", existing=existing)
        assert len(file.read_bytes()) > 100
        return
    with pytest.raises(RunDirectoryError, match=rf"{file.name} has the name of a checkpoint that this run writes, but"):
        collected(tmp_path / "run", existing=existing)
    assert file.read_bytes() == before[content]
