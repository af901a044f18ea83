"""What every part of the runtime may use: addresses, the text of a message, themes of wishes, open files."""
