"""Transformers: a tiny GPT-2 and a tiny BERT from their configurations, their own losses, the Trainer."""

import functools
import tempfile
import warnings

import numpy as np
import torch
from cases import CollectorCase, Crash, EvaluatorCase
from torch.utils.data import DataLoader
from worker_cases import found, seeded

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what Transformers imports
    import transformers
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from collectors.transformers import SummaryCollector

WORDS, LENGTH, PADDING, MASK = 23, 10, 0, 1


def make_gpt2():
    ends = {"bos_token_id": PADDING, "eos_token_id": PADDING, "pad_token_id": PADDING}
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2, **ends))


def make_bert():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForMaskedLM(BertConfig(vocab_size=WORDS, max_position_embeddings=LENGTH, pad_token_id=PADDING, **sizes))


def sentences(count, seed=0):
    """Token ids of unequal length."""
    generator = np.random.default_rng(seed)
    return [torch.from_numpy(generator.integers(2, WORDS, generator.integers(3, LENGTH + 1))) for _ in range(count)]


def pad(samples, *, longest=LENGTH, hidden=False):
    """Returns a batch as a tokenizer and a collator make it, padded to ``longest`` (None: its own longest).

    With ``hidden``, some tokens are hidden and only those have labels (BERT); otherwise all have (GPT-2).
    """
    longest = longest or max(map(len, samples))
    ids = torch.full((len(samples), longest), PADDING)
    labels = torch.full((len(samples), longest), -100)
    mask = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, sample in enumerate(samples):
        ids[row, : len(sample)] = sample
        mask[row, : len(sample)] = 1
        chosen = torch.arange(len(sample)) % 3 == len(sample) % 3 if hidden else torch.ones(len(sample), dtype=bool)
        labels[row, : len(sample)][chosen] = sample[chosen]
        if hidden:
            ids[row, : len(sample)][chosen] = MASK
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def build(make_network, hidden, longest):
    collate = functools.partial(pad, longest=longest, hidden=hidden)
    return None, seeded(make_network), DataLoader(sentences(48), 12, collate_fn=collate), {}


def own_loss(built, hidden):
    """The network's loss of all samples in one batch."""
    _, network, loader, _ = built
    network.eval()
    with torch.no_grad():
        return network(**pad(list(loader.dataset), hidden=hidden)).loss.item()


def freeze(network):
    embedding = network.base_model.embeddings.word_embeddings if hasattr(network, "bert") else network.transformer.wpe
    embedding.weight.requires_grad_(False)
    return "bert.embeddings.word_embeddings.weight" if hasattr(network, "bert") else "transformer.wpe.weight"


EVALUATOR_CASES = [
    EvaluatorCase(
        name=f"transformers {name}{', padded to each batch' if longest is None else ''}",
        build=functools.partial(build, make_network, hidden, longest),
        own_loss=functools.partial(own_loss, hidden=hidden),
        freeze=freeze,
        freeze_all=lambda network: network.requires_grad_(False),
        recalibrate="nothing",
        restored=found,
    )
    for name, make_network, hidden in (("GPT-2", make_gpt2, False), ("BERT", make_bert, True))
    for longest in (LENGTH, None)
]


class CrashAfter(transformers.TrainerCallback):
    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.steps:
            raise Crash


def trainer(network, output_dir, callbacks, count=32, hidden=False, **options):
    """Returns a Trainer that reports to nobody."""
    arguments = TrainingArguments(
        str(output_dir),
        **{
            "num_train_epochs": 3,
            "per_device_train_batch_size": 8,
            "learning_rate": 0.01,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "logging_strategy": "no",
            "use_cpu": True,
            "dataloader_pin_memory": False,
            **options,
        },
    )
    collate = functools.partial(pad, hidden=hidden)
    return Trainer(network, arguments, data_collator=collate, train_dataset=sentences(count), callbacks=callbacks)


def train(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    callbacks = [SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)]
    if crash_after is not None:
        callbacks.append(CrashAfter(crash_after))
    with tempfile.TemporaryDirectory() as folder:
        saves = {"save_strategy": "epoch"} if checkpoint is not None else {}
        resumed = checkpoint / "checkpoint-4" if checkpoint is not None and crash_after is None else None
        trainer(seeded(make_gpt2), checkpoint or folder, callbacks, **saves).train(resume_from_checkpoint=resumed)


COLLECTOR_CASES = [CollectorCase("transformers", train)]
