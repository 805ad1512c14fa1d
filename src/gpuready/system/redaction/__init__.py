"""Replace secrets in text and JSON: found by their form (`secret_patterns`) or by a name beside them (`secret_names`)."""
