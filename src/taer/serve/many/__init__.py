"""Many heads behind one server: ``taer serve DIR --many``.

``folder`` has the heads on disk, ``queue`` is the one learning process, ``heads`` loads a head when it is asked and drops
it when memory is short, ``turns`` is the order in which requests begin, and ``app`` sends each request to the
application of its head.
"""
