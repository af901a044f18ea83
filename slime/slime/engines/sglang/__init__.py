"""SGLang as the engine: started as a separate process and controlled through its native HTTP API.

SGLang is not a dependency of this package. It may be in another Python (`--engine-python`), because it pins
versions of torch and transformers.

* `launch`: starts it, with flags checked by its own `ServerArgs`, and prints the ready line;
* `child`: the small program that this other Python runs;
* `capabilities`: required features of SGLang, checked for versions other than the tested one;
* `routes`: weight updates, with verification that the new weights are served;
* `transport`, `broadcast`: how weights reach the engine: read from disk, or broadcast;
* `sender`, `buckets`, `group_calls`: the sending process, its units, and SGLang's HTTP calls for groups.
"""
