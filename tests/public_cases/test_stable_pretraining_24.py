"""galilai-group/stable-pretraining#24: Slurm gave a task fewer cores than the machine has, and all were used."""

from workers.pools.devices import available_cores


def test_slurms_number_is_a_limit(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    before = available_cores()
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert available_cores() == before[:1]
