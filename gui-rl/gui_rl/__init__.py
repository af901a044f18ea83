"""The GUI track: agents that look at a screen and act with mouse and keyboard."""
