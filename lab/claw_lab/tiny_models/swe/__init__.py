"""The tiny agent of the SWE track: small repositories with one wrong line, and a checkpoint that knows repairs."""
