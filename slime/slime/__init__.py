"""The trainer framework: samples in, new weights out, engines kept up to date."""

__version__ = "0.2.0"
