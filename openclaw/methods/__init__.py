"""The definition of a method, and the code that methods share."""
