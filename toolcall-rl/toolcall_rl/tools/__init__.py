"""What a model may call, as `TOOLS_CONFIG` names it: Python in the sandbox, Python functions, MCP servers."""
