"""The local store of an index: LanceDB and memory-mapped caches."""
