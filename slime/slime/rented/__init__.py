"""A model whose weights are at a service that rents out GPUs: the interface of such a service, its engine and its
trainer."""
