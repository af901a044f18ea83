"""The embedded engine: continuous batching of a Hugging Face model on a CPU or one GPU.

One thread serves HTTP, another decodes; the rest is plain state and functions. The README of this folder lists its
files.
"""
