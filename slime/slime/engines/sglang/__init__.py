"""SGLang as the engine: started as a separate process and controlled through its native HTTP API.

SGLang is not a dependency of this package: it may be in another Python (`--engine-python`), because it pins versions
of torch and transformers.

* `launch`: starts it, with flags checked by its own `ServerArgs`, and prints the ready line;
* `child`: the small program that this other Python runs;
* `capabilities`: what we need of an SGLang, probed where its version is not the measured one;
* `routes`: weight updates with proof that the new weights are the ones that serve;
* `transport`, `broadcast`: how a version gets in, read from disk by the engine or broadcast to it;
* `sender`, `buckets`, `group_calls`: the side that sends, what it sends at a time, SGLang's HTTP calls around that.
"""
