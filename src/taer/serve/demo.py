"""``taer serve --demo``: a head that knows a few animals in sketches, and the eyes it saw them with."""
