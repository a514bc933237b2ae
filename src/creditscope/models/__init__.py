"""The architectures of the protocol, all written as embed -> blocks -> readout."""

from creditscope.models.resmlp import ResMLP, StudentNet
from creditscope.models.small_cnn import SmallCNN
from creditscope.models.vit_mini import ViTMini

__all__ = ["ResMLP", "SmallCNN", "StudentNet", "ViTMini"]
