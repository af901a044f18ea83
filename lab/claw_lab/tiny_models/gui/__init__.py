"""The tiny agent of the GUI track: small generated pages, and a checkpoint that can read and click."""
