"""A head behind HTTP: examples come in, tasks are learned, versions are kept, predictions never stop.

``store`` keeps examples and versions on disk, ``learner`` runs tasks in a process of its own, ``service`` holds the
version that answers, ``app`` speaks HTTP, and ``page`` is what a person sees.
"""
