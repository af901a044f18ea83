"""Runs inside a sandbox: pytest on a repository that an agent has changed. The code is passed to `python -I -c`, with
the path of a JSON file {"secret", "plugin", "arguments", "repository", "needs", "own"}; "own": whether the repository
has the packages that pytest needs.

The interpreter is isolated: pytest, all its modules and the verdict plugin are imported, and the file is deleted,
before any folder of the repository is on the path. If pytest needs a package that the repository defines, the
repository's is used.
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
