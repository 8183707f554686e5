"""Shell commands as an assessment reads them: words, globs, braces, quoting, lookups."""
