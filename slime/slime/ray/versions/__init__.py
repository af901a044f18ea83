"""The versions of a run: states, publication to the engines, files, and orders of users about them."""
