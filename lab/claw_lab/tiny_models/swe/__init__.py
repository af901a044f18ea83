"""The tiny agent of this track: small repositories with one wrong line, and a checkpoint that knows how repairs look."""
