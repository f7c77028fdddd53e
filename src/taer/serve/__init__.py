"""A service for one head: it predicts, collects examples, learns tasks, and stores versions.

``store`` has examples and versions on disk, ``tasks`` makes new versions in a process that ``learner`` runs,
``serving`` is the current version, ``service`` has all operations, ``routes`` offers them over HTTP by way of ``api``,
and ``page`` is the web page.
"""
