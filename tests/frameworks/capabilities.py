"""Which framework can do what: the table of docs/trainers/index.md, which test_capabilities.py tries cell by cell."""

FRAMEWORKS = {
    "torch": "PyTorch",
    "lightning": "Lightning",
    "transformers": "Transformers",
    "composer": "Composer",
    "keras": "Keras",
    "jax": "JAX",
    "mindspore": "MindSpore",
}

OF_EVALUATORS = (
    "a grid",
    "metrics",
    "standard errors",
    "several data sets",
    "the loss of each class",
    "the loss of each sample",
    "a random choice of samples",
    "lower precision",
    "recalibrated statistics",
    "curvature (Hessian)",
    "curvature (Gauss-Newton)",
    "a plane along eigenvectors",
    "a curve between two networks",
    "alignment",
    "two workers",
    "going on after a stop",
)
RESUMES, IMPORTS = "the trainer's own resume", "old checkpoints"

OLD_CHECKPOINTS = {
    "torch": "collectors/run_directory/test_importing.py::test_numbers_inside_the_files",
    "lightning": "frameworks/test_lightning_checkpoints.py::test_a_folder_of_checkpoints",
    "transformers": "frameworks/test_transformers_checkpoints.py::test_the_folders_of_a_trainer",
    "composer": "frameworks/test_composer_checkpoints.py::test_each_epoch_is_imported_and_measured",
    "keras": "frameworks/test_keras_checkpoints.py::test_each_kind_is_imported_and_measured",
    "jax": "frameworks/test_jax_checkpoints.py::test_each_kind_is_imported_and_measured",
    "mindspore": "frameworks/test_mindspore.py::test_checkpoints_with_optimizer_and_wrapped_names",
}
"""The tests that import them, in the sessions that try the other cells."""

_ONE_NUMBER = (
    "The loss is the model's own, which gives one number for a batch; with a loss function in its place, "
    "`(nn.CrossEntropyLoss(), module, data, metrics)`, it is as in PyTorch."
)
_DIFFERENCES = "It needs derivatives of outputs; the Hessian's products are differences of MindSpore's gradients."
_NO_STATISTICS = "Their usual networks have none (LayerNorm); a network that has some is as in PyTorch."
_BUILT = "A network computes in the precision in which it was built."
_GRAPH = "What can be permuted is read off PyTorch's graph of a network."
_ITS_LOSSES = "It needs a loss that is a function of outputs and targets alone; a compiled Keras loss has more parts."

HOLES: dict[tuple[str, str], str] = {
    **{
        (capability, framework): _ONE_NUMBER
        for capability in (
            "standard errors",
            "the loss of each class",
            "the loss of each sample",
            "curvature (Gauss-Newton)",
        )
        for framework in ("lightning", "transformers", "composer")
    },
    ("recalibrated statistics", "transformers"): _NO_STATISTICS,
    ("curvature (Gauss-Newton)", "keras"): _ITS_LOSSES,
    **{("lower precision", framework): _BUILT for framework in ("jax", "mindspore")},
    **{("alignment", framework): _GRAPH for framework in ("keras", "jax", "mindspore")},
    ("curvature (Gauss-Newton)", "mindspore"): _DIFFERENCES,
}
"""Why a framework cannot do something, by capability and framework."""


def table():
    """Returns the table as lines of Markdown: a check mark, or the number of the sentence below it."""
    reasons = list(dict.fromkeys(HOLES.values()))
    lines = ["| | " + " | ".join(FRAMEWORKS.values()) + " |", "|---|" + "---|" * len(FRAMEWORKS)]
    for capability in (*OF_EVALUATORS, IMPORTS, RESUMES):
        holes = [HOLES.get((capability, framework)) for framework in FRAMEWORKS]
        cells = ["yes" if hole is None else f"no ({reasons.index(hole) + 1})" for hole in holes]
        lines.append(f"| {capability} | {' | '.join(cells)} |")
    return [*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
