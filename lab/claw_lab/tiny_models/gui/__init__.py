"""The tiny agent of the GUI track: small pages that are made by a program, and a checkpoint that can read and click."""
