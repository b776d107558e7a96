"""Module that nobody may import; a record in the tests names it."""

raise SystemExit("imported, though a record chose it")
