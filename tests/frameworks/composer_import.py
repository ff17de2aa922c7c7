"""Import this before Composer: PyPI's torchvision is built for CUDA, and next to a CPU torch its operators are missing.

Neither is needed here: Composer imports torchvision, and torchvision at import looks its operators up.
"""

from importlib.metadata import version

import torch

if torch.version.cuda is None and "+cpu" not in version("torchvision"):
    LIBRARY = torch.library.Library("torchvision", "DEF")
    LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
