"""Code that runtime and trainer share: settings, files of a run folder, servers that keep their port, errors, ports."""
