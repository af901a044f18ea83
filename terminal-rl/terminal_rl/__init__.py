"""Terminal agents: task folders, shells in a sandbox, rewards from tests that the agent cannot reach."""
