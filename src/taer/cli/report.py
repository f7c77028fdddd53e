"""``taer report``: results on disk turned into a page, tables and figures."""
