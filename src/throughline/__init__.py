"""Throughline: how fast does this hardware, with this framework, train this model, and how well does it scale?"""

__version__ = "0.4.0"
