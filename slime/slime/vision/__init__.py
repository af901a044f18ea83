"""Vision models: storage of images, their positions among a sample's tokens, and the input of a model."""
