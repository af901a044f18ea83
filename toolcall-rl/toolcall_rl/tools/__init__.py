"""The tools in `TOOLS_CONFIG`: Python in the sandbox, Python functions, MCP servers."""
