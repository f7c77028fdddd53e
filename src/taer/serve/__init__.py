"""A service for one head: it predicts, collects examples, learns tasks, and stores versions.

``store`` has examples and versions on disk, ``tasks`` makes new versions in a process that ``learner`` runs,
``serving`` is the current version, ``service`` has all operations, ``routes`` offers them over HTTP by way of ``api``,
and ``page`` is the web page. With that alone it works; the other modules by what they are for:

- a request: ``connection`` (time limits), ``gate`` and ``tokens`` (who may ask), ``bodies`` and ``inputs`` (what may be
  sent), ``backbones`` (images and texts to features), ``protocol`` (clients of Triton and KServe)
- disk: ``database`` under ``store``, ``backup``, ``purge``, ``export``
- answers that say more: ``reasons``, ``trust``
- learning from use: ``inbox``, ``groups``, ``staging``, ``watch``
- other machines: ``published``, ``replica``, ``traces``; other programs: ``label_studio/``; many heads: ``many/``
- start: ``run``, ``start``, ``app``
"""
