"""The tools of a model, as `TOOLS_CONFIG` names them: Python in the sandbox, Python functions, MCP servers."""
