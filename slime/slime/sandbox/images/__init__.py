"""Container images as files for sandboxes; podman or docker only download them."""

from slime.sandbox.images.build import built_image
from slime.sandbox.images.cache import image_of, images_folder
from slime.sandbox.images.image import Image

__all__ = ["Image", "built_image", "image_of", "images_folder"]
