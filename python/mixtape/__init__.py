"""Ops with gradients, a tape over them, and calibration of quantized language models."""

from ._mixtape import *
from ._mixtape import __version__
