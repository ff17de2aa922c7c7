"""Networks of Transformers in the order of others: what can be permuted in them, and that it changes nothing."""

import numpy as np
import pytest
import torch
import transformers

from collectors.networks.readers import read_network
from landscape.paths.alignment import align
from landscape.paths.matching import permuted

TOKENS = torch.arange(24).reshape(2, 12) * 7 % 99
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 64, "max_position_embeddings": 16}


def gpt():
    config = {"n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=99, **config))


def bert():
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2))


CASES = {
    "gpt": (gpt, {"input_ids": TOKENS, "labels": TOKENS}, [4, 8, 32, 128]),
    # Its pooler has units of its own.
    "bert": (bert, {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}, [4, 8, 8, 32, 32, 64]),
    # Two heads for keys, each with two for queries; inside a head, rotations leave only values free.
    "llama": (llama, {"input_ids": TOKENS}, [2, 2, 8, 32, 64]),
}


@pytest.mark.parametrize("name", CASES)
def test_undone(name):
    build, example, sizes = CASES[name]
    torch.manual_seed(0)
    a, b = build(), build()
    groups = align(b, to=a, example=example).groups
    assert sorted(group.size for group in groups) == sizes
    rng, state = np.random.default_rng(0), read_network(a)
    shuffled = permuted(state, [group.permuted_by(rng.permuted(group.permutation, axis=-1)) for group in groups])
    found = align(shuffled, to=a, example=example)
    assert found.distance_before > 1
    assert found.distance_after == 0
    assert found.verified < 1e-6
