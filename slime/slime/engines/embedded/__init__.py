"""The embedded engine: continuous batching of a Hugging Face model on a CPU or one GPU.

One thread serves HTTP, another decodes. The README of this folder lists its files.
"""
