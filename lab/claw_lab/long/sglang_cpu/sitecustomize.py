"""Makes torchvision importable with a torch that it was not built for: defines its missing operators by name.

They are declared without a body, since no code that serves a language model calls them.
"""

import importlib.abc
import sys


class _DefineOperators(importlib.abc.MetaPathFinder):
    """Defines the operators when torchvision is first imported, and finds no module itself."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            self.library = library
            sys._torchvision_operators = self


sys.meta_path.insert(0, _DefineOperators())
