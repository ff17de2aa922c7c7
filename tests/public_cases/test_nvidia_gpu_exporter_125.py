"""utkuozdemir/nvidia_gpu_exporter#125: within WSL2 there is no /dev/nvidia0, but NVIDIA's library knows the GPU."""

from workers.pools import devices


class Library:
    @staticmethod
    def nvmlInit_v2():
        return 0

    @staticmethod
    def nvmlDeviceGetCount_v2(pointer):
        pointer._obj.value = 1

    @staticmethod
    def nvmlShutdown():
        return 0


def test_the_library_is_asked(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: Library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices._ask_driver.cache_clear()
    try:
        assert devices.gpu_ids() == (0,)
    finally:
        devices._ask_driver.cache_clear()
