"""What every part of the runtime may use: declared settings, ports, the run folder."""
