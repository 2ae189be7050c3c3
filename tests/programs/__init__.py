"""Random workflows that use the whole language, run straight and run under faults: the two must agree."""
