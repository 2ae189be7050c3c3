"""The engine: one attempt of a step, one turn of a body. Decides with pure functions, acts through the ports."""
