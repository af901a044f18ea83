"""The checks of a candidate before it goes live, and the way back of a trainer whose candidate failed."""
