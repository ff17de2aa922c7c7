"""THOR in the Trainer of Transformers, whose scheduler sets the learning rate."""

import pytest
import torch
from transformers_cases import make_bert, pad, trainer
from worker_cases import seeded

from collectors import thor


def loss_of(network, samples):
    network.eval()
    with torch.no_grad():
        return network(**pad(samples, hidden=True)).loss.item()


def test_a_bert_learns_with_the_trainer(tmp_path):
    network = seeded(make_bert)
    training = trainer(network, tmp_path, [], hidden=True, num_train_epochs=12)
    before = loss_of(network, training.train_dataset)
    training.optimizer = optimizer = thor(network, 0.02, 0.02, 0.9, frequency=4, enable_clip_grad=True)
    with pytest.warns(UserWarning, match=r"plain gradients of \['bert.embeddings.word_embeddings.weight'\]"):
        training.train()
    assert optimizer.param_groups[0]["step"] == 48
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-3)
    assert "bert.encoder.layer.0.attention.self.query" in optimizer._recorders.layers
    assert loss_of(network, training.train_dataset) < before - 0.3
