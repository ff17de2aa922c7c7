"""PetaVision/OpenPV#301: old checkpoints were removed together with whatever lay there."""

import pytest
import torch
from runs import collected

from collectors.errors import RunDirectoryError


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_of_the_user_with_the_name_of_a_checkpoint_stays(tmp_path):
    collected(tmp_path / "run")
    folder = tmp_path / "run" / "ckpt_dir"
    (path,) = folder.glob("*_1_*.safetensors")
    (folder / "train_metadata.json").unlink()
    for other in folder.glob("*.safetensors"):
        other.unlink()
    torch.save({"weight": torch.ones(3)}, path)
    before = path.read_bytes()
    with pytest.raises(RunDirectoryError, match=rf"{path.name} has the name of a checkpoint that this run writes"):
        collected(tmp_path / "run", existing="overwrite")
    assert path.read_bytes() == before
