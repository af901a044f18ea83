"""Runs inside a sandbox: pytest on a repository that an agent has changed. Handed to `python -I -c` with the path of
an order, JSON {"secret", "plugin", "arguments", "repository", "needs", "own": whether the repository has what pytest
needs}.

The interpreter is isolated: pytest, all its parts and the plugin of verdicts are imported before any folder of the
repository is on the path, and the order is gone by then. Names of a repository that pytest itself needs are its own.
"""

import importlib
import json
import os
import sys
import types


def main() -> int:
    with open(sys.argv[1]) as file:
        order = json.load(file)
    os.unlink(sys.argv[1])
    if order["own"]:
        sys.path[:0] = order["repository"]
    sys.path.append(order["needs"])
    config = importlib.import_module("_pytest.config")
    for name in config.default_plugins:
        importlib.import_module(f"_pytest.{name}")
    pytest = importlib.import_module("pytest")
    plugin = types.ModuleType("boxed")
    exec(compile(order["plugin"], "<verdicts>", "exec"), plugin.__dict__)
    module = types.ModuleType("hooks")
    module.__dict__.update(plugin.hooks(order.pop("secret")))
    if not order["own"]:
        sys.path[:0] = order["repository"]
    sys.argv[:] = ["pytest"]
    return int(pytest.main(order["arguments"], plugins=[module]))


sys.exit(main())
