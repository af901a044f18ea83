"""Terminal agents: task folders, shells in a sandbox, rewards by tests that no agent can reach."""
