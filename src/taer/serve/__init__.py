"""A head behind HTTP: examples come in, tasks are learned, versions are kept, predictions never stop.

``store`` keeps examples and versions on disk, ``tasks`` makes new versions in a process that ``learner`` runs,
``serving`` is the version that answers, ``service`` is what can be done, ``routes`` and ``app`` speak HTTP, and
``page`` is what a person sees.
"""
