"""pytorch/examples#115: CUDA_VISIBLE_DEVICES names a GPU that the machine does not have, so that there is none."""

from workers.pools import devices


def test_it_is_no_gpu(monkeypatch):
    monkeypatch.setattr(devices, "driver_gpus", lambda: 1, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert devices.gpu_ids() == ()
