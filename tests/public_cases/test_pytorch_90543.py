"""pytorch/pytorch#90543: CUDA_VISIBLE_DEVICES may hold UUIDs, which were counted without asking whether they exist."""

import pytest

from workers.pools import devices


@pytest.mark.parametrize(
    "visible", ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-4c60d78c-506f-5593-938d-a136eaa1fa52", "4,5,6,7"]
)
def test_none_of_them_is_a_gpu_where_the_driver_has_none(monkeypatch, visible):
    monkeypatch.setattr(devices, "driver_gpus", lambda: 0, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.gpu_ids() == ()
